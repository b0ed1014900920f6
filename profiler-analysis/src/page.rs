//! Tables as HTML and Markdown, and script-free HTML pages.

use std::fmt::Write as _;

use profiler_base::display::Layout;
use profiler_base::table;
use profiler_base::text::{html, markdown};

/// The style of every page: profile, comparison, roofline.
pub(crate) const STYLE: &str = include_str!("page.css");
/// The SHA-256 of the style in the content security policy of a page, checked by a test.
pub(crate) const STYLE_HASH: &str = "sha256-61gFog8MHI8w2M8JI3zge4UgF0GLtVuX09qnlwznnY4=";
/// The end of the rules that a plot needs in a file of its own.
const PLOTS_END: &str = "/* Every page. */";

/// The part of the style for a plot in a file of its own.
pub(crate) fn plot_style() -> &'static str {
    STYLE.split_once(PLOTS_END).map_or(STYLE, |(plots, _)| plots)
}

/// A page that loads and runs nothing. `content` is HTML, the title plain text.
pub(crate) fn page(title: &str, content: &str) -> String {
    let title = html(title);
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src '{STYLE_HASH}'; img-src data:; \
         base-uri 'none'; form-action 'none'\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<meta name=\"referrer\" content=\"no-referrer\">\n\
         <link rel=\"icon\" href=\"data:,\">\n<title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body class=\"document\">\n\
         <main>\n<h1>{title}</h1>\n{content}</main>\n</body>\n</html>\n"
    )
}

/// A paragraph of plain text.
pub(crate) fn paragraph(text: &str) -> String {
    format!("<p>{}</p>\n", html(text))
}

/// The tone of a row: neutral, or a change for the worse or better.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tone {
    /// Neutral.
    Plain,
    /// A change for the worse.
    Worse,
    /// A change for the better.
    Better,
}

/// A table with a title. Texts are plain; the writers escape them.
#[derive(Debug)]
pub(crate) struct Table {
    /// Its heading.
    pub(crate) title: &'static str,
    /// The names of its columns.
    pub(crate) head: Vec<&'static str>,
    /// Its rows, with as many cells as there are columns.
    pub(crate) rows: Vec<(Tone, Vec<String>)>,
}

impl Table {
    /// A table of neutral rows.
    pub(crate) fn new<const N: usize>(
        title: &'static str,
        head: [&'static str; N],
        rows: impl IntoIterator<Item = [String; N]>,
    ) -> Self {
        let rows = rows.into_iter().map(|row| (Tone::Plain, row.into())).collect();
        Self { title, head: head.into(), rows }
    }

    /// The rows for a terminal. Columns from `right_from` are right-aligned.
    pub(crate) fn text(&self, right_from: usize, layout: Layout) -> String {
        let mut table = table::Table::new(self.head.iter().copied(), right_from);
        self.rows.iter().for_each(|(_, row)| table.add_row(row));
        table.render(layout)
    }

    /// The title and up to `most` rows as HTML.
    pub(crate) fn html(&self, most: usize) -> String {
        let mut out = format!(
            "<h2>{0}</h2>\n<div class=\"sheet\" tabindex=\"0\" role=\"region\" aria-label=\"{0}\"><table>\n<thead><tr>",
            html(self.title)
        );
        for head in &self.head {
            let _ = write!(out, "<th scope=\"col\">{}</th>", html(head));
        }
        out.push_str("</tr></thead>\n<tbody>\n");
        for (tone, cells) in self.rows.iter().take(most) {
            out.push_str(match tone {
                Tone::Plain => "<tr>",
                Tone::Worse => "<tr class=\"worse\">",
                Tone::Better => "<tr class=\"better\">",
            });
            for cell in cells {
                let _ = write!(out, "<td>{}</td>", html(cell));
            }
            out.push_str("</tr>\n");
        }
        out.push_str("</tbody>\n</table></div>\n");
        out.extend(self.more(most).map(|more| paragraph(&more)));
        out
    }

    /// The title and up to `most` rows as Markdown.
    pub(crate) fn markdown(&self, most: usize) -> String {
        let marks = [":--"].into_iter().chain(self.head.iter().skip(1).map(|_| "--:"));
        let mut out = format!(
            "\n**{}**\n\n| {} |\n| {} |\n",
            markdown(self.title),
            self.head.join(" | "),
            marks.collect::<Vec<_>>().join(" | ")
        );
        for (tone, cells) in self.rows.iter().take(most) {
            let cell = |cell: &String| match tone {
                // Two stars around empty text would be a rule.
                Tone::Worse if !cell.is_empty() => format!("**{}**", markdown(cell)),
                _ => markdown(cell),
            };
            let cells: Vec<String> = cells.iter().map(cell).collect();
            let _ = writeln!(out, "| {} |", cells.join(" | "));
        }
        out.extend(self.more(most).map(|more| format!("\n{more}\n")));
        out
    }

    fn more(&self, most: usize) -> Option<String> {
        (self.rows.len() > most).then(|| format!("{} more rows", self.rows.len() - most))
    }
}

/// The hash of a text in the syntax of content security policies.
#[cfg(test)]
pub(crate) fn hash_of(text: &str) -> String {
    use base64::Engine as _;

    let digest = hmac_sha256::Hash::hash(text.as_bytes());
    format!("sha256-{}", base64::engine::general_purpose::STANDARD.encode(digest))
}

#[cfg(test)]
mod tests {
    use nvtx::Dtype;

    use super::*;

    #[test]
    fn the_policy_names_the_style() {
        assert_eq!(STYLE_HASH, hash_of(STYLE), "STYLE_HASH is not that of page.css");
        assert!(!STYLE.contains('<') && !STYLE.contains('&') && !STYLE.contains('\r'));
        assert!(!STYLE.contains("http:") && !STYLE.contains("https:") && !STYLE.contains("url("));
    }

    #[test]
    fn a_plot_in_its_own_file_has_its_colours_and_no_rule_of_pages() {
        let style = plot_style();
        assert!(style.len() < STYLE.len() / 2 && !style.contains("table"));
        for dtype in Dtype::ALL {
            assert!(style.contains(&format!(".rl-{} ", dtype.name())), "{dtype}");
        }
    }
}
