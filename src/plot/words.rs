//! Text and numbers as pictures write them. Pure.

/// `text` fit for a picture or a terminal: line breaks and tabs become spaces; what would command a terminal (control
/// characters, marks that turn the direction of writing), what has no width of its own and what XML forbids becomes `�`.
pub(super) fn clean(text: &str) -> String {
    let clean = |c: char| match c {
        '\n' | '\r' | '\t' | '\u{2028}' | '\u{2029}' => ' ',
        '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' => '\u{fffd}',
        '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{fffe}' | '\u{ffff}' => {
            '\u{fffd}'
        }
        c if c.is_control() => '\u{fffd}',
        c => c,
    };
    text.chars().map(clean).collect()
}

/// Three significant digits, or scientific notation for the very large and small; "no value" unless finite.
pub(super) fn number(value: f64) -> String {
    match decimals(value) {
        Some(decimals) => format!("{value:.decimals$}"),
        None if value == 0.0 => "0".to_owned(),
        None if value.is_finite() => format!("{value:.2e}"),
        None => "no value".to_owned(),
    }
}

/// Decimals that show three significant digits; `None` for numbers that are not written with decimals.
fn decimals(value: f64) -> Option<usize> {
    let plain = (1e-4..1e5).contains(&value.abs());
    plain.then(|| (2 - value.abs().log10().floor() as i32).max(0) as usize)
}

/// A share in whole percent: `97 %`; "no value" unless finite.
pub(super) fn percent(share: f64) -> String {
    if share.is_finite() { format!("{:.0} %", share.clamp(0.0, 1.0) * 100.0) } else { "no value".to_owned() }
}

/// A number with the decimals of another, so that they line up.
pub(super) fn as_exact(value: f64, as_this: f64) -> String {
    match decimals(as_this) {
        Some(decimals) if value.abs() < 1e5 => format!("{value:.decimals$}"),
        _ => number(value),
    }
}

/// A value with its interval where it has one, with the same decimals: `0.842 [0.810, 0.870]`.
pub(super) fn with_interval(value: f64, interval: Option<(f64, f64)>) -> String {
    let inside =
        interval.map(|(low, high)| format!(" [{}, {}]", as_exact(low, value), as_exact(high, value)));
    number(value) + &inside.unwrap_or_default()
}

/// Largest size of a number that is drawn: the difference of two such still is a finite number.
const LARGEST: f64 = 1e300;
/// Below this size a number is drawn as 0: what is divided by it stays finite.
const SMALLEST: f64 = 1e-300;

/// A number that can be drawn; `None` for NaN and the infinities. Beyond 10^300 it is drawn as 10^300, below 10^-300 as 0.
pub(super) fn finite(value: f64) -> Option<f64> {
    let drawn = if value.abs() < SMALLEST { 0.0 } else { value.clamp(-LARGEST, LARGEST) };
    value.is_finite().then_some(drawn)
}

/// The interval of two drawable numbers in rising order; `None` when one is missing.
pub(super) fn interval(low: f64, high: f64) -> Option<(f64, f64)> {
    let (low, high) = (finite(low)?, finite(high)?);
    Some((low.min(high), low.max(high)))
}

/// The median of finite numbers, halfway between the middle two when their count is even.
pub(super) fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    let upper = sorted.get(middle)?;
    Some(if sorted.len() % 2 == 1 { *upper } else { sorted[middle - 1] / 2.0 + upper / 2.0 })
}

/// Indices from the highest value to the lowest, equal ones in their order, those without a value last.
pub(super) fn descending(values: &[f64]) -> Vec<usize> {
    let key = |i: usize| finite(values[i]).unwrap_or(f64::NEG_INFINITY) + 0.0;
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|&a, &b| key(b).total_cmp(&key(a)));
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_commands_nothing_and_breaks_no_line() {
        assert_eq!(clean("a\u{1b}[31mb\nc\u{202e}d\0"), "a\u{fffd}[31mb c\u{fffd}d\u{fffd}");
        assert_eq!(clean("é語 <&>"), "é語 <&>");
    }

    #[test]
    fn numbers_have_three_digits() {
        let shown =
            [0.0, 0.8423, 0.03417, 12.34, 1234.5, -0.5, 3e7, 2e-9, f64::NAN, f64::NEG_INFINITY].map(number);
        let wanted =
            ["0", "0.842", "0.0342", "12.3", "1234", "-0.500", "3.00e7", "2.00e-9", "no value", "no value"];
        assert_eq!(shown, wanted);
        assert_eq!(with_interval(0.5, interval(0.6, 0.4)), "0.500 [0.400, 0.600]");
        assert_eq!(with_interval(0.0908, interval(0.0007, 1e9)), "0.0908 [0.0007, 1.00e9]");
        assert_eq!(with_interval(0.0, interval(-0.25, 0.3)), "0 [-0.250, 0.300]");
        assert_eq!(with_interval(0.5, interval(f64::NAN, 0.4)), "0.500");
        assert_eq!([percent(0.974), percent(7.0), percent(f64::NAN)], ["97 %", "100 %", "no value"]);
    }

    #[test]
    fn medians_and_orders() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(median(&[]), None);
        assert_eq!(descending(&[0.1, f64::NAN, 0.9, 0.1, -0.0, 0.0]), [2, 0, 3, 4, 5, 1]);
    }
}
