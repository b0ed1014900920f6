//! A profile as one page of HTML: scorecard, summary, findings, timeline and tables, with nothing to fetch.

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
/// SHA-256 of the two as the page's policy names them: what else stands in the page never runs. A test holds them.
const STYLE_HASH: &str = "sha256-8JwcgI5VETK5EyDuTjp8v3TtBNCauX/TbVqDkBf19F4=";
const SCRIPT_HASH: &str = "sha256-P+nxvku0/LNB3AYUCCHpYqbVJcnUrC5UP2VPiatYMow=";

impl Profile {
    /// One page of HTML that shows this profile: [`write_html`](Self::write_html) as text.
    pub fn to_html(&self) -> String {
        let mut page = Vec::new();
        // A vector takes everything, and serde_json has no way to fail at numbers and strings.
        let _: io::Result<()> = write(self, &mut page);
        String::from_utf8(page).unwrap_or_default()
    }

    /// Writes one page of HTML that shows this profile in a browser, from disk, without a network: scorecard, summary and
    /// health, a timeline, and ranges, kernels, memory operations and API calls as tables.
    ///
    /// The page fetches nothing, and its policy forbids it to. Names are data in it, never markup. It holds what the
    /// profile holds: names of ranges, kernels and threads, the GPUs and versions, but no host name, user, path or
    /// environment. About 50 bytes for a launch with its call and range. A diagnosis and a scorecard are made for it.
    ///
    /// [Tracks](Self::tracks) of samplers are drawn below their device: of each pixel the mean by time, and the most. One has
    /// at most 20,000 stretches, and all of them together 200,000; of longer ones as many samples after each other become
    /// one, with its mean, its least and its most. Means over the session and over ranges are those of all samples.
    ///
    /// # Errors
    /// `out` took less than the whole page.
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
    let data = data::Data::of(profile, &findings, &card);
    let mut rest = TEMPLATE;
    // Each place stands in the template once, in this order.
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
            text::write_page_json(Escaped(&mut out), &data)?;
        }
    }
    out.write_all(rest.as_bytes())?;
    out.flush()
}

/// JSON that can stand in a `script` element: no `<`, which JSON has in strings only.
struct Escaped<W>(W);

impl<W: Write> Write for Escaped<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match bytes.iter().position(|byte| *byte == b'<') {
            Some(0) => self.0.write_all(br"\u003c").map(|()| 1),
            at => self.0.write(&bytes[..at.unwrap_or(bytes.len())]),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
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
        let names = ["</script>", "<", "a<b", "<<!--<", "", "\u{0}\"\\"];
        let mut bytes = Vec::new();
        serde_json::to_writer(Escaped(&mut bytes), &names).unwrap();
        assert!(!bytes.contains(&b'<'));
        let read: Vec<String> = serde_json::from_slice(&bytes).unwrap();
        assert_eq!(read, names);
    }
}
