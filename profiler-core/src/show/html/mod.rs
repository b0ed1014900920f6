//! A profile as one self-contained HTML page: scorecard, summary, findings, timeline and tables.

mod data;
mod findings;
mod names;
mod pauses;
mod statistics;
mod tracks;

use std::io::{self, Write};

use crate::analyze::diagnosis::Thresholds;
use crate::analyze::scorecard::{Scorecard, Targets};
use crate::base::error::{Error, Kind};
use crate::base::text;
use crate::profile::Profile;

const TEMPLATE: &str = include_str!("template.html");
const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("script.js");
/// The SHA-256 hashes in the page's content security policy, checked by a test.
const STYLE_HASH: &str = "sha256-hG2pS5gEG2JsHAPGpD702emePSmkCijLY0Q1U7mB45M=";
const SCRIPT_HASH: &str = "sha256-Mq+yBIQ3xenoGxcR4Trl7PHZHK4QltYbQgTYjUn7v5U=";

impl Profile {
    /// The profile as one HTML page: the text of [`write_html`](Self::write_html).
    pub fn to_html(&self) -> String {
        let mut page = Vec::new();
        // Writing to a vector cannot fail, nor can serialization of numbers and strings.
        let _: io::Result<()> = write(self, &mut page);
        String::from_utf8(page).unwrap_or_default()
    }

    /// Writes the profile as one HTML page for a browser, without a network: scorecard, summary and
    /// health, a timeline, and tables of ranges, kernels, memory operations and API calls.
    ///
    /// The page fetches nothing, and its policy forbids fetches. Names are data, never markup. The
    /// page contains names of ranges, kernels and threads, the GPUs and versions, but no host name,
    /// user, path or environment. It takes about 50 bytes for a launch with its call and range, and
    /// the time of a diagnosis and a scorecard.
    ///
    /// [Tracks](Self::tracks) of samplers are drawn below their device: the mean by time and the
    /// maximum of each pixel. A track has at most 20,000 segments, all tracks together 200,000.
    /// Longer tracks are downsampled: consecutive samples become one segment with mean, minimum and
    /// maximum. Means over the session and over ranges include all samples.
    ///
    /// # Errors
    /// `out` cannot be written.
    pub fn write_html(&self, out: impl Write) -> Result<(), Error> {
        write(self, io::BufWriter::new(out))
            .map_err(|source| Error::new(Kind::Export { format: "HTML", source: source.into() }))
    }
}

fn write(profile: &Profile, mut out: impl Write) -> io::Result<()> {
    let diagnoser = profile.diagnosis(Thresholds::new());
    let verdict = diagnoser.verdict();
    let found = diagnoser.findings_of(&verdict);
    let findings = findings::plain(profile, &verdict, &found);
    let card = Scorecard::of(profile, &Targets::new(), &verdict, &found);
    let data = data::Data::of(profile, &findings, &card, |device| diagnoser.clock_ns_of(device));
    let mut rest = TEMPLATE;
    // Each placeholder is in the template once, in this order.
    let places = [
        ("{script_hash}", SCRIPT_HASH),
        ("{style_hash}", STYLE_HASH),
        ("{style}", STYLE),
        ("{data}", ""),
        ("{script}", SCRIPT),
    ];
    for (place, content) in places {
        if let Some((before, after)) = rest.split_once(place) {
            out.write_all(before.as_bytes())?;
            out.write_all(content.as_bytes())?;
            rest = after;
        }
        if place == "{data}" {
            text::write_page_json(&mut out, &data)?;
        }
    }
    out.write_all(rest.as_bytes())?;
    out.flush()
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;

    use super::*;

    fn hash(text: &str) -> String {
        let digest = hmac_sha256::Hash::hash(text.as_bytes());
        format!("sha256-{}", base64::engine::general_purpose::STANDARD.encode(digest))
    }

    #[test]
    fn the_policy_names_the_style_and_the_script() {
        assert_eq!(STYLE_HASH, hash(STYLE), "STYLE_HASH is not that of style.css");
        assert_eq!(SCRIPT_HASH, hash(SCRIPT), "SCRIPT_HASH is not that of script.js");
        // What would end their elements, or what a parser would change.
        for text in [STYLE, SCRIPT] {
            assert!(!text.contains("</") && !text.contains("<!--") && !text.contains('\r'));
            assert!(!text.contains("http:") && !text.contains("https:"));
        }
    }

    #[test]
    fn every_place_of_the_template_is_filled_once() {
        for place in ["{script_hash}", "{style_hash}", "{style}", "{data}", "{script}"] {
            assert_eq!(TEMPLATE.matches(place).count(), 1, "{place}");
        }
    }

    #[test]
    fn json_in_an_element_has_no_angle_bracket_and_is_the_same() {
        let names = ["</script>", "<", "a<b", "<<!--<", "", "\"\\"];
        let mut bytes = Vec::new();
        text::write_page_json(&mut bytes, &names).unwrap();
        assert!(!bytes.contains(&b'<'));
        let read: Vec<String> = serde_json::from_slice(&bytes).unwrap();
        assert_eq!(read, names);
    }
}
