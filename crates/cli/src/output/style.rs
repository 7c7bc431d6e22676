//! Colours. They repeat what the words say and never say anything alone.

/// Whether and how to colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Style {
    on: bool,
}

impl Style {
    /// With colours.
    pub(crate) fn coloured() -> Self {
        Self { on: true }
    }

    /// Without.
    pub(crate) fn plain() -> Self {
        Self { on: false }
    }

    /// Whether there are colours.
    pub(crate) fn is_on(self) -> bool {
        self.on
    }

    fn wrap(self, code: &str, text: &str) -> String {
        if self.on { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_owned() }
    }

    /// Strong.
    pub(crate) fn bold(self, text: &str) -> String {
        self.wrap("1", text)
    }

    /// Faint.
    pub(crate) fn dim(self, text: &str) -> String {
        self.wrap("2", text)
    }

    /// Bad.
    pub(crate) fn red(self, text: &str) -> String {
        self.wrap("1;31", text)
    }

    /// Good.
    pub(crate) fn green(self, text: &str) -> String {
        self.wrap("32", text)
    }

    /// Look here.
    pub(crate) fn yellow(self, text: &str) -> String {
        self.wrap("33", text)
    }

    /// A label.
    pub(crate) fn cyan(self, text: &str) -> String {
        self.wrap("36", text)
    }
}
