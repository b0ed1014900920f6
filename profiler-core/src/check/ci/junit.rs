//! JUnit's XML.

use std::io;
use std::time::Duration;

use profiler_base::text::shortened;
use quick_xml::Writer;
use quick_xml::events::{BytesDecl, BytesText, Event};

use super::{Check, CheckOutcome, CiReport, lines_of, name_of, unique_names};

/// The maximum number of characters of the attribute `message`, and of the text of a failure.
const SUMMARY_WIDTH: usize = 1000;
const TEXT_WIDTH: usize = 32_000;

type Xml = Writer<Vec<u8>>;

impl CiReport {
    /// JUnit's XML with one suite: a case for each check, `failure` for failed and `error` for
    /// undecided ones, with `file` and `line`; notes as `system-out`. Metrics are omitted.
    #[must_use]
    pub fn to_junit(&self) -> String {
        let mut xml = Writer::new_with_indent(Vec::new(), b' ', 2);
        // Writing into memory cannot fail.
        let _: io::Result<()> = self.write_junit(&mut xml);
        let mut text = String::from_utf8(xml.into_inner()).unwrap_or_default();
        text.push('\n');
        text
    }

    fn write_junit(&self, xml: &mut Xml) -> io::Result<()> {
        let suite = name_of(&self.suite);
        let seconds = |time: Duration| format!("{:.6}", time.as_secs_f64());
        let mut totals = vec![
            ("name", suite.clone()),
            ("tests", self.checks.len().to_string()),
            ("failures", self.count(CheckOutcome::Failed).to_string()),
            ("errors", self.count(CheckOutcome::Undecided).to_string()),
            ("skipped", self.count(CheckOutcome::Skipped).to_string()),
        ];
        totals.extend(self.duration.map(|time| ("time", seconds(time))));
        let totals: Vec<(&str, &str)> =
            totals.iter().map(|(name, value)| (*name, value.as_str())).collect();
        xml.write_event(Event::Decl(BytesDecl::new("1.0", Some("UTF-8"), None)))?;
        // Only a suite has the attribute `skipped`.
        let of_all = totals.iter().copied().filter(|(name, _)| *name != "skipped");
        let all = xml.create_element("testsuites").with_attributes(of_all);
        all.write_inner_content(|xml| {
            let element = xml.create_element("testsuite").with_attributes(totals);
            element.write_inner_content(|xml| {
                let names = unique_names(self.checks.iter().map(|check| &*check.name));
                for (check, name) in self.checks.iter().zip(names) {
                    write_case(xml, &suite, &name, check)?;
                }
                if !self.notes.is_empty() {
                    let notes: Vec<String> =
                        self.notes.iter().flat_map(|note| lines_of(note, TEXT_WIDTH)).collect();
                    let text = BytesText::new(&notes.join("\n")).into_owned();
                    xml.create_element("system-out").write_text_content(text)?;
                }
                Ok(())
            })?;
            Ok(())
        })?;
        Ok(())
    }
}

fn write_case(xml: &mut Xml, suite: &str, name: &str, check: &Check) -> io::Result<()> {
    let mut case = xml
        .create_element("testcase")
        .with_attribute(("name", name))
        .with_attribute(("classname", suite));
    if let Some((file, line)) = &check.location {
        case = case
            .with_attribute(("file", &*name_of(file)))
            .with_attribute(("line", &*line.to_string()));
    }
    let element = match check.outcome {
        CheckOutcome::Passed if check.message.is_empty() => {
            case.write_empty()?;
            return Ok(());
        }
        CheckOutcome::Passed => "system-out",
        CheckOutcome::Failed => "failure",
        CheckOutcome::Undecided => "error",
        CheckOutcome::Skipped => "skipped",
    };
    let first = check.message.lines().next().unwrap_or_default();
    case.write_inner_content(|xml| {
        let element = xml.create_element(element);
        let element = match check.outcome {
            CheckOutcome::Passed => element,
            _ => element.with_attribute(("message", &*shortened(first, SUMMARY_WIDTH))),
        };
        match check.outcome {
            CheckOutcome::Skipped => element.write_empty()?,
            _ => {
                let text = lines_of(&check.message, TEXT_WIDTH).join("\n");
                element.write_text_content(BytesText::new(&text))?
            }
        };
        Ok(())
    })?;
    Ok(())
}
