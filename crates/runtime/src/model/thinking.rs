//! How much a model thinks before it answers. What a vendor makes of a level is the business of its own file.

/// How much a model is to think.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Thinking {
    /// Not at all.
    Off,
    /// A little.
    Low,
    /// Somewhat.
    Medium,
    /// Much.
    High,
}

impl Thinking {
    /// All levels, the least first.
    pub const ALL: [Self; 4] = [Self::Off, Self::Low, Self::Medium, Self::High];

    /// The name in the configuration and on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
        }
    }

    /// The level with exactly this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|level| level.as_str() == name)
    }
}
