//! What tokens cost, in whole numbers: a price has at most six decimals for a million tokens, so what one token costs is
//! a whole number of millionths of a millionth, and no sum ever needs rounding.

use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use zeroclaw_runtime::model::Usage;

/// Parts of one unit of money in which amounts are counted.
const PARTS: u128 = 1_000_000_000_000;

/// Decimals that a client is told; the rest is less than anybody pays.
const SHOWN_DECIMALS: usize = 9;

/// What the tokens of a model cost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Price {
    input: u64,
    output: u64,
    cached: u64,
    cache_write: u64,
    currency: String,
}

impl Price {
    /// Makes a price from amounts for a million tokens; what is read from a cache and written to it costs the same as
    /// other input unless it is said. Negative amounts count as nothing.
    #[must_use]
    pub fn new(input: f64, output: f64, cached: Option<f64>, cache_write: Option<f64>, currency: &str) -> Self {
        // What was written as a decimal number comes back as one, whatever the binary fraction is.
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates, and is not negative")]
        let millionths = |amount: f64| (amount.max(0.0) * 1e6).round() as u64;
        Self {
            input: millionths(input),
            output: millionths(output),
            cached: millionths(cached.unwrap_or(input)),
            cache_write: millionths(cache_write.unwrap_or(input)),
            currency: currency.trim().to_ascii_uppercase(),
        }
    }

    fn of(&self, usage: &Usage) -> u128 {
        let plain = usage.input.saturating_sub(usage.cached).saturating_sub(usage.written);
        let of = |tokens: u64, price: u64| u128::from(tokens) * u128::from(price);
        of(plain, self.input)
            + of(usage.cached, self.cached)
            + of(usage.written, self.cache_write)
            + of(usage.output, self.output)
    }
}

/// What a session has used since it was made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
pub(crate) struct Spent {
    input: u64,
    output: u64,
    cached: u64,
    written: u64,
    /// By currency; as many as the configuration has named while the session lived.
    costs: BTreeMap<String, Amount>,
}

impl Spent {
    /// Adds one model call.
    pub(crate) fn add(&mut self, usage: &Usage, price: Option<&Price>) {
        self.input = self.input.saturating_add(usage.input);
        self.output = self.output.saturating_add(usage.output);
        self.cached = self.cached.saturating_add(usage.cached);
        self.written = self.written.saturating_add(usage.written);
        if let Some(price) = price {
            let amount = self.costs.entry(price.currency.clone()).or_default();
            amount.0 = amount.0.saturating_add(price.of(usage));
        }
    }

    /// The amount in the currency of a price, as the JSON number that is told.
    pub(crate) fn in_currency_of<'a>(&self, price: &'a Price) -> Option<(Box<RawValue>, &'a str)> {
        let amount = self.costs.get(&price.currency).copied().unwrap_or_default();
        let number = RawValue::from_string(amount.shown()).ok()?;
        Some((number, &price.currency))
    }
}

impl fmt::Display for Spent {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { input, output, cached, .. } = self;
        write!(formatter, "Tokens used in this session: {input} in ({cached} of them cached), {output} out.")?;
        if !self.costs.is_empty() {
            let costs: Vec<String> =
                self.costs.iter().map(|(currency, amount)| format!("{} {currency}", amount.shown())).collect();
            write!(formatter, "\nCost by the configured prices: {}.", costs.join(" and "))?;
        }
        Ok(())
    }
}

/// An amount of money, stored as a decimal text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Amount(u128);

impl Amount {
    fn decimal(parts: u128, decimals: usize) -> String {
        let unit = 10_u128.pow(u32::try_from(decimals).unwrap_or(0));
        let text = format!("{}.{:0decimals$}", parts / unit, parts % unit);
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    }

    fn exact(self) -> String {
        Self::decimal(self.0, 12)
    }

    /// Rounded half up.
    fn shown(self) -> String {
        let cut = PARTS / 10_u128.pow(9);
        Self::decimal(self.0.saturating_add(cut / 2) / cut, SHOWN_DECIMALS)
    }

    fn parse(text: &str) -> Option<Self> {
        let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
        if fraction.len() > 12 || !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        let fraction: u128 = format!("{fraction:0<12}").parse().ok()?;
        whole.parse::<u128>().ok()?.checked_mul(PARTS)?.checked_add(fraction).map(Self)
    }
}

impl Serialize for Amount {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.exact())
    }
}

impl<'de> Deserialize<'de> for Amount {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).ok_or_else(|| serde::de::Error::custom("not an amount of money"))
    }
}

#[cfg(test)]
mod tests {
    use super::{Amount, Price, Spent, Usage};

    fn usage(input: u64, output: u64, cached: u64, written: u64) -> Usage {
        Usage { input, output, cached, written }
    }

    #[test]
    fn sums_are_decimal() {
        let price = Price::new(0.1, 0.2, None, None, " usd");
        let mut spent = Spent::default();
        for _ in 0..3 {
            spent.add(&usage(1_000_000, 0, 0, 0), Some(&price));
        }
        let (number, currency) = spent.in_currency_of(&price).unwrap();
        assert_eq!((number.get(), currency), ("0.3", "USD"));
        spent.add(&usage(0, 1, 0, 0), Some(&price));
        assert_eq!(spent.in_currency_of(&price).unwrap().0.get(), "0.3000002");
    }

    #[test]
    fn what_is_cached_has_its_own_price() {
        let price = Price::new(3.0, 15.0, Some(0.3), Some(3.75), "EUR");
        let mut spent = Spent::default();
        spent.add(&usage(1_000, 100, 600, 300), Some(&price));
        // 100 at 3, 600 at 0.3, 300 at 3.75, 100 at 15, for a million each.
        assert_eq!(spent.in_currency_of(&price).unwrap().0.get(), "0.003105");
        spent.add(&usage(5, 5, 0, 0), None);
        assert_eq!(spent.in_currency_of(&price).unwrap().0.get(), "0.003105");
        assert!(
            spent
                .to_string()
                .ends_with("1005 in (600 of them cached), 105 out.\nCost by the configured prices: 0.003105 EUR.")
        );
    }

    #[test]
    fn what_was_stored_comes_back_exactly() {
        for text in ["0", "0.000000000001", "12.5", "340282366920938463463.374607431768"] {
            assert_eq!(Amount::parse(text).unwrap().exact(), text);
        }
        for text in ["", "1.", "-1", "1.0000000000001", "1e3", "999999999999999999999999999999"] {
            assert_eq!(Amount::parse(text).is_some(), text == "1.", "{text}");
        }
        let mut spent = Spent::default();
        spent.add(&usage(7, 8, 1, 2), Some(&Price::new(0.000_001, 2.5, None, None, "USD")));
        let stored = serde_json::to_string(&spent).unwrap();
        assert_eq!(serde_json::from_str::<Spent>(&stored).unwrap(), spent);
    }
}
