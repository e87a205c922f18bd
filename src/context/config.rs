//! How a context is managed: how many results a query has, which share of them is kept, and by which rule.

use std::num::NonZeroUsize;

use serde::{Deserialize, Serialize};

/// The rules of one context. They hold for its whole life: a log has one configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// B: results that a query is expected to have, chunks in a scored batch.
    pub results_per_query: NonZeroUsize,
    /// ϱ: the share of B that may enter the whitelist with each group.
    pub retention: Retention,
    /// By which rule chunks are chosen.
    pub mode: Mode,
}

impl Config {
    /// ⌈ϱB⌉: the most chunks that a group admits; `1..=B`, and exact.
    #[must_use]
    pub fn admissions(&self) -> usize {
        let all = self.results_per_query.get() as u128;
        let kept = (u128::from(self.retention.0) * all).div_ceil(u128::from(Retention::WHOLE));
        usize::try_from(kept).expect("a share of a usize is one: this is a bug")
    }
}

/// By which rule chunks are chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Chunks wait in the candidate cache, are scored again and again, and compete by their mean.
    #[default]
    Manager,
    /// The ablation: only the results of the current search are scored; what is not admitted is forgotten.
    CurrentSearch,
}

/// ϱ, the retention rate: above 0, at most 1, in billionths.
///
/// Held as a decimal because ⌈ϱB⌉ of binary fractions is wrong by one where ϱB is a whole number and the nearest binary
/// fraction lies above it, as for 0.07 × 100.
/// Written and read as a JSON number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "f64", into = "f64")]
pub struct Retention(u32);

impl Retention {
    /// Billionths in 1.
    const WHOLE: u32 = 1_000_000_000;
}

impl Default for Retention {
    /// The paper's 0.5.
    fn default() -> Self {
        Self(Self::WHOLE / 2)
    }
}

impl TryFrom<f64> for Retention {
    type Error = RetentionError;

    /// The decimal of at most nine places whose nearest binary fraction is `found`.
    fn try_from(found: f64) -> Result<Self, RetentionError> {
        if !(found > 0.0 && found <= 1.0) {
            return Err(RetentionError::OutOfRange { found });
        }
        let billionths = (found * f64::from(Self::WHOLE)).round();
        // Division rounds once, so this is the fraction nearest to the decimal, as reading its digits gives it.
        if billionths < 1.0 || billionths / f64::from(Self::WHOLE) != found {
            return Err(RetentionError::TooFine { found });
        }
        Ok(Self(billionths as u32))
    }
}

impl From<Retention> for f64 {
    fn from(retention: Retention) -> Self {
        Self::from(retention.0) / Self::from(Retention::WHOLE)
    }
}

/// A number that is no retention rate.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum RetentionError {
    /// It is no share.
    #[error("a retention rate must be above 0 and at most 1, not {found}")]
    OutOfRange {
        /// The number given.
        found: f64,
    },
    /// Not to be told from a neighbour by a decimal, so that ⌈ϱB⌉ would be chance.
    #[error("a retention rate has at most 9 decimals, as in 0.333333333; {found} has more")]
    TooFine {
        /// The number given.
        found: f64,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admissions(retention: f64, results: usize) -> usize {
        let results_per_query = NonZeroUsize::new(results).unwrap();
        Config { results_per_query, retention: retention.try_into().unwrap(), mode: Mode::Manager }
            .admissions()
    }

    #[test]
    fn admissions_are_those_of_the_paper() {
        assert_eq!([1, 2, 3, 4, 5, 10].map(|b| admissions(0.5, b)), [1, 1, 2, 2, 3, 5]);
    }

    #[test]
    fn whole_products_are_not_rounded_up() {
        for (rate, results, want) in [(0.3, 10, 3), (0.1, 30, 3), (0.7, 10, 7), (0.07, 100, 7), (0.28, 25, 7)]
        {
            assert_eq!(admissions(rate, results), want, "{rate} of {results}");
        }
        // what binary fractions make of some
        assert_eq!([(0.07 * 100.0_f64).ceil(), (0.28 * 25.0_f64).ceil()], [8.0, 8.0]);
    }

    #[test]
    fn every_decimal_of_three_places_is_exact() {
        for thousandths in 1..=1000_usize {
            let rate: f64 = format!("{}.{:03}", thousandths / 1000, thousandths % 1000).parse().unwrap();
            for results in 1..=60 {
                assert_eq!(
                    admissions(rate, results),
                    (thousandths * results).div_ceil(1000),
                    "{rate} of {results}"
                );
            }
        }
        assert_eq!(admissions(1e-9, 7), 1);
        assert_eq!(admissions(1.0, usize::MAX), usize::MAX);
    }

    #[test]
    fn rates_are_written_as_they_were_read() {
        for text in ["0.5", "1.0", "0.1", "0.7", "0.333333333", "1e-9", "0.999999999", "0.07"] {
            let rate: Retention = serde_json::from_str(text).unwrap();
            assert_eq!(serde_json::to_string(&rate).unwrap(), text);
        }
        assert_eq!(serde_json::from_str::<Retention>("1").unwrap(), Retention(Retention::WHOLE));
    }

    #[test]
    fn what_is_no_rate_is_refused() {
        for found in [0.0, -0.0, -0.5, 1.000_000_001, f64::INFINITY] {
            assert_eq!(Retention::try_from(found), Err(RetentionError::OutOfRange { found }));
        }
        assert!(Retention::try_from(f64::NAN).is_err());
        for found in [0.1 + 0.2, 1.0 / 3.0, 1e-10, 4e-10, 6e-10, f64::MIN_POSITIVE, 0.5_f64.next_up()] {
            assert_eq!(Retention::try_from(found), Err(RetentionError::TooFine { found }));
        }
        let zero = r#"{"results_per_query":0,"retention":0.5,"mode":"manager"}"#;
        assert!(serde_json::from_str::<Config>(zero).unwrap_err().to_string().contains("nonzero"));
    }
}
