//! A date and time of day as plain numbers, and Python's `strftime` for the directives templates use.

/// A date and time of day in the proleptic Gregorian calendar, in whatever zone the caller chose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CivilTime {
    /// Year, 1 to 9999.
    pub year: u16,
    /// Month, 1 to 12.
    pub month: u8,
    /// Day of the month, from 1.
    pub day: u8,
    /// Hour, 0 to 23.
    pub hour: u8,
    /// Minute, 0 to 59.
    pub minute: u8,
    /// Second, 0 to 59.
    pub second: u8,
}

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const DAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];

impl CivilTime {
    /// The time `seconds` after 1970-01-01 00:00:00, in UTC when the seconds are.
    #[must_use]
    pub fn from_unix(seconds: u64) -> Self {
        let (days, rest) = (seconds / 86_400, seconds % 86_400);
        // Years that start in March put the leap day last; eras of 400 years all have 146,097 days
        // (H. Hinnant, "chrono-compatible low-level date algorithms").
        let days = days + 719_468;
        let (era, day) = (days / 146_097, days % 146_097);
        let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
        let day_of_year = day - (365 * year + year / 4 - year / 100);
        let month = (5 * day_of_year + 2) / 153;
        let in_january_or_february = month >= 10;
        Self {
            year: (era * 400 + year + u64::from(in_january_or_february)).min(9999) as u16,
            month: (if in_january_or_february { month - 9 } else { month + 3 }) as u8,
            day: (day_of_year - (153 * month + 2) / 5 + 1) as u8,
            hour: (rest / 3600) as u8,
            minute: (rest / 60 % 60) as u8,
            second: (rest % 60) as u8,
        }
    }

    /// Formats like Python's `strftime` in the C locale. Fails with the first directive it does not know.
    pub fn format(&self, format: &str) -> Result<String, String> {
        let mut out = String::new();
        let mut chars = format.chars();
        while let Some(c) = chars.next() {
            if c != '%' {
                out.push(c);
                continue;
            }
            let directive = chars.next();
            match directive {
                // glibc's "no padding"
                Some('-') => {
                    let padded = chars.next().and_then(|d| self.directive(d).map(|text| (d, text)));
                    let (_, text) = padded.filter(|(d, _)| "dmHIMSjy".contains(*d)).ok_or("%-")?;
                    out += match text.trim_start_matches('0') {
                        "" => "0",
                        digits => digits,
                    };
                }
                Some(d) => out += &self.directive(d).ok_or_else(|| format!("%{d}"))?,
                None => return Err("%".into()),
            }
        }
        Ok(out)
    }

    fn directive(&self, directive: char) -> Option<String> {
        let Self { year, month, day, hour, minute, second } = *self;
        let month_name = MONTHS.get(usize::from(month).wrapping_sub(1)).copied().unwrap_or("?");
        Some(match directive {
            'Y' => format!("{year:04}"),
            'y' => format!("{:02}", year % 100),
            'm' => format!("{month:02}"),
            'd' => format!("{day:02}"),
            'e' => format!("{day:2}"),
            'B' => month_name.into(),
            'b' | 'h' => month_name.chars().take(3).collect(),
            'A' => DAYS[self.weekday()].into(),
            'a' => DAYS[self.weekday()][..3].into(),
            'j' => format!("{:03}", self.day_of_year()),
            'H' => format!("{hour:02}"),
            'I' => format!("{:02}", (hour + 11) % 12 + 1),
            'p' => (if hour < 12 { "AM" } else { "PM" }).into(),
            'M' => format!("{minute:02}"),
            'S' => format!("{second:02}"),
            'F' => self.format("%Y-%m-%d").ok()?,
            'T' => self.format("%H:%M:%S").ok()?,
            'D' => self.format("%m/%d/%y").ok()?,
            '%' => "%".into(),
            _ => return None,
        })
    }

    fn day_of_year(&self) -> u32 {
        const BEFORE: [u32; 12] = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334];
        let leap =
            self.year.is_multiple_of(4) && (!self.year.is_multiple_of(100) || self.year.is_multiple_of(400));
        let before = BEFORE.get(usize::from(self.month).wrapping_sub(1)).copied().unwrap_or(0);
        before + u32::from(self.day) + u32::from(leap && self.month > 2)
    }

    /// 0 is Sunday.
    fn weekday(&self) -> usize {
        let y = u32::from(self.year.max(1)) - 1;
        ((y * 365 + y / 4 - y / 100 + y / 400 + self.day_of_year()) % 7) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        let at = |seconds| CivilTime::from_unix(seconds).format("%Y-%m-%d %H:%M:%S %a %j").unwrap();
        assert_eq!(at(0), "1970-01-01 00:00:00 Thu 001");
        assert_eq!(at(951_782_399), "2000-02-28 23:59:59 Mon 059");
        assert_eq!(at(951_782_400), "2000-02-29 00:00:00 Tue 060");
        assert_eq!(at(1_735_689_599), "2024-12-31 23:59:59 Tue 366");
        assert_eq!(at(1_764_500_000), "2025-11-30 10:53:20 Sun 334");
        assert_eq!(at(4_107_542_400), "2100-03-01 00:00:00 Mon 060");
    }

    #[test]
    fn directives_print_as_in_python() {
        let now = CivilTime { year: 2024, month: 7, day: 6, hour: 0, minute: 5, second: 9 };
        let said = now.format("%d %b %Y|%B %-d, %y|%A|%I:%M %p|%-I|%-H|%e|%F|%T|100%%").unwrap();
        assert_eq!(said, "06 Jul 2024|July 6, 24|Saturday|12:05 AM|12|0| 6|2024-07-06|00:05:09|100%");
        for unknown in ["%Q", "%", "%-", "%-B"] {
            assert!(now.format(unknown).is_err(), "{unknown}");
        }
    }
}
