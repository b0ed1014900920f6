//! A profile as one self-contained HTML page: timeline, findings, tables, flame graph and roofline.

mod data;
mod findings;
mod lines;
mod names;
mod pauses;
mod ranks;
mod script;
mod statistics;
mod tracks;

use std::io::{self, Write};
use std::time::Duration;

use profiler_base::text;

use crate::analyze::diagnosis::{Diagnoser, Thresholds};
use crate::analyze::roofline::{self, Declared, peaks};
use crate::analyze::scorecard::{Scorecard, Targets};
use crate::error::{Error, Kind};
use crate::page;
use profiler_core::profile::Profile;

const TEMPLATE: &str = include_str!("template.html");

/// [`ProfileExt::to_html`](crate::prelude::ProfileExt::to_html).
pub(crate) fn to_html(profile: &Profile) -> String {
    let mut page = Vec::new();
    // Writing to a vector cannot fail, nor can serialization of numbers and strings.
    let _: io::Result<()> = write(profile, &mut page);
    String::from_utf8(page).unwrap_or_default()
}

/// [`ProfileExt::write_html`](crate::prelude::ProfileExt::write_html).
pub(crate) fn write_html(profile: &Profile, out: impl Write) -> Result<(), Error> {
    write(profile, io::BufWriter::new(out))
        .map_err(|source| Error::new(Kind::Export { format: "HTML", source: source.into() }))
}

/// The maximum number of moments as evidence of a finding on the page.
const EVIDENCE: usize = 50;

fn write(profile: &Profile, mut out: impl Write) -> io::Result<()> {
    let diagnoser = Diagnoser::new(profile, Thresholds::new().evidence(EVIDENCE));
    let judged = diagnoser.judged();
    let clock = Duration::from_nanos(diagnoser.clock().ns());
    let findings = findings::plain(profile, &judged, clock);
    let card = Scorecard::new(profile, &Targets::new(), &judged);
    let data = data::Data::new(profile, &findings, &card, diagnoser.clock(), |device| {
        diagnoser.clock_ns_of(device)
    });
    let roofline = roofline(profile);
    let script = script::joined();
    let mut rest = TEMPLATE;
    // Each placeholder is in the template once, in this order.
    let places = [
        ("{script_hash}", script::HASH),
        ("{style_hash}", page::STYLE_HASH),
        ("{style}", page::STYLE),
        ("{roofline}", &roofline),
        ("{data}", ""),
        ("{script}", &script),
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

/// The plot and tables of declared work; empty if no work is declared.
fn roofline(profile: &Profile) -> String {
    let Some(peaks) = peaks::peaks(profile, None) else { return String::new() };
    let roofline = roofline::roofline(profile, &peaks, &Declared::new());
    if roofline.points.is_empty() { String::new() } else { roofline.content() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_place_of_the_template_is_filled_once() {
        let places =
            ["{script_hash}", "{style_hash}", "{style}", "{roofline}", "{data}", "{script}"];
        for place in places {
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
