//! A page of HTML in the making. Markup is the program's own, `&'static str`; whatever else comes is text, and is escaped.

use std::fmt::Write;

/// See the module.
#[derive(Debug, Default)]
pub struct Html(String);

impl Html {
    /// Markup.
    pub fn mark(&mut self, markup: &'static str) -> &mut Html {
        self.0.push_str(markup);
        self
    }

    /// Text of anybody's, as text and as the value of an attribute in double quotes. What would act on the page or turn its words
    /// around is shown as an escape.
    pub fn text(&mut self, text: &str) -> &mut Html {
        for c in text.chars() {
            match c {
                '<' => self.0.push_str("&lt;"),
                '>' => self.0.push_str("&gt;"),
                '&' => self.0.push_str("&amp;"),
                '"' => self.0.push_str("&quot;"),
                '\'' => self.0.push_str("&#39;"),
                c if is_unseen(c) => self.0.extend(c.escape_unicode()),
                c => self.0.push(c),
            }
        }
        self
    }

    /// A number, with commas between its thousands.
    pub fn number(&mut self, number: u64) -> &mut Html {
        let text = grouped(number);
        self.mark_of(&text)
    }

    /// A length in a drawing.
    pub fn length(&mut self, length: f64) -> &mut Html {
        let _ = write!(self.0, "{length:.1}");
        self
    }

    /// How many bytes there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The page.
    pub fn end(self) -> String {
        self.0
    }

    fn mark_of(&mut self, digits: &str) -> &mut Html {
        self.0.push_str(digits);
        self
    }
}

/// Characters that are not to be seen, or change how others are.
fn is_unseen(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
            | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}')
}

/// A number with commas between its thousands.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn text_is_text() {
        let mut html = Html::default();
        html.mark("<p title=\"")
            .text("\" onx='")
            .mark("\">")
            .text("</script><img onerror=\"x\">\n\u{202e}\u{1b}[0m&amp;é");
        assert_eq!(
            html.end(),
            "<p title=\"&quot; onx=&#39;\">&lt;/script&gt;&lt;img onerror=&quot;x&quot;&gt;\\u{a}\\u{202e}\\u{1b}[0m&amp;amp;é"
        );
    }

    proptest! {
        #[test]
        fn no_text_is_markup(text: String) {
            let mut html = Html::default();
            html.text(&text);
            let out = html.end();
            prop_assert!(!out.contains(['<', '>', '"', '\'']) && !out.chars().any(is_unseen), "{out:?}");
        }
    }

    #[test]
    fn numbers_are_grouped() {
        assert_eq!([0, 999, 1000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
    }
}
