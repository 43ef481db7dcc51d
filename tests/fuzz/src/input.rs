//! Choices made from bytes, so that both random bytes and those of a fuzzer become commands, lines and messages.

/// Bytes that choose. When they are used up every choice is the first one, so an input is finite whatever it makes.
#[derive(Debug)]
pub struct Input<'a> {
    bytes: &'a [u8],
}

impl<'a> Input<'a> {
    /// Choices from these bytes.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    /// A number below `sides`, which is not zero.
    pub fn roll(&mut self, sides: usize) -> usize {
        let mut number = 0;
        // A byte is enough for most; two keep large choices possible.
        for _ in 0..if sides > 256 { 2 } else { 1 } {
            let Some((first, rest)) = self.bytes.split_first() else { return 0 };
            self.bytes = rest;
            number = number * 256 + usize::from(*first);
        }
        number % sides.max(1)
    }

    /// One of these, which are not none.
    pub fn pick<'b>(&mut self, from: &[&'b str]) -> &'b str {
        from.get(self.roll(from.len())).copied().unwrap_or_default()
    }

    /// Whether there is anything left to choose with.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
}
