//! How fast a gateway sends, and when, as it is typed: rates, daily windows, and what goes together.

use crate::base::exit::{Exit, Failure};
use crate::base::values::{Rate, Span, read_from_text};
use hoop_dispatch::{DAY_MINUTES, DailyWindow, Hours};
use hoop_gateway::{BudgetConfig, Pacing};
use std::str::FromStr;
use std::time::Duration;

/// A daily window: `22:00-06:30`, or with the most that is sent in it, `08:00-18:00=500kbit`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Window(pub DailyWindow);

impl FromStr for Window {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let error = || format!("expected a window such as 22:00-06:30 or 08:00-18:00=500kbit, not `{text}`");
        let (times, rate) = match text.split_once('=') {
            Some((times, rate)) => (times, Some(rate.parse::<Rate>()?.0)),
            None => (text, None),
        };
        let minute = |text: &str| -> Option<u16> {
            let (hours, minutes) = text.split_once(':')?;
            let (hours, minutes): (u16, u16) = (hours.parse().ok()?, minutes.parse().ok()?);
            // A day's end may be written 24:00.
            let is_time = minutes < 60 && (hours < 24 || (hours, minutes) == (24, 0));
            is_time.then_some((hours * 60 + minutes) % DAY_MINUTES)
        };
        let (from, to) = times.split_once('-').ok_or_else(error)?;
        let (from, to) = minute(from).zip(minute(to)).ok_or_else(error)?;
        Ok(Self(DailyWindow { from, to, rate }))
    }
}

read_from_text!(Window);

/// What flags and file together say of how fast, and when.
pub struct Limits {
    pub rate: Option<Rate>,
    pub windows: Vec<Window>,
    pub background: bool,
    pub target: Option<Span>,
    pub budget: Option<Rate>,
    pub billing_day: Option<u8>,
    pub interface: Option<String>,
    pub deadlines_wait: bool,
}

/// A longer queue than that is nothing to aim at (RFC 6817 §3).
const TARGET_MAX: Duration = Duration::from_millis(100);

impl Limits {
    /// The same in which nothing contradicts.
    ///
    /// # Errors
    /// If something does.
    pub fn check(self) -> Result<Pacing, Failure> {
        let hours = Hours::new(self.windows.iter().map(|window| window.0).collect());
        let hours = hours.map_err(|error| Failure::new(Exit::Usage, "cannot use these windows", error))?;
        let rate = self.rate.map(|rate| rate.0);
        if let Some(window) = self.windows.iter().find(|window| rate.is_some_and(|rate| window.0.rate > Some(rate))) {
            return Err(Failure::usage(format!("the rate of window {} is higher than --rate", window.0)));
        }
        if self.target.is_some() && !self.background {
            return Err(Failure::usage("background-target needs background"));
        }
        if self.target.is_some_and(|target| target.0.is_zero() || target.0 > TARGET_MAX) {
            return Err(Failure::usage(
                "background-target must be more than 0 and at most 100ms; a number without a unit is seconds",
            ));
        }
        let background = self.background.then(|| self.target.map_or(hoop_dispatch::TARGET, |target| target.0));
        let budget = match (self.budget, self.billing_day.unwrap_or(1)) {
            (None, _) if self.billing_day.is_some() => return Err(Failure::usage("billing-day needs budget")),
            (None, _) if self.interface.is_some() => return Err(Failure::usage("uplink-interface needs budget")),
            (None, _) => None,
            (Some(_), 0 | 29..) => return Err(Failure::usage("billing-day must be between 1 and 28")),
            (Some(committed), billing_day) => Some(BudgetConfig { committed: committed.0, billing_day }),
        };
        if let Some(name) = self.interface.as_ref().filter(|name| !hoop_gateway::is_interface(name)) {
            return Err(Failure::usage(format!("there is no network interface {name}")));
        }
        if self.deadlines_wait && budget.is_none() && !hours.is_limited() {
            return Err(Failure::usage("deadlines-wait needs window or budget"));
        }
        let deadlines_wait = self.deadlines_wait;
        Ok(Pacing { rate, hours, background, budget, interface: self.interface, deadlines_wait, utc_offset: None })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hoop_units::Bitrate;

    #[test]
    fn rates_and_windows_have_units_and_minutes() {
        assert_eq!("1.15Mbit".parse(), Ok(Rate(Bitrate::kbps(1_150))));
        assert_eq!("500kbit/s".parse(), Ok(Rate(Bitrate::kbps(500))));
        let window = |from, to, rate| Ok(Window(DailyWindow { from, to, rate }));
        assert_eq!("22:00-06:30".parse(), window(1_320, 390, None));
        assert_eq!("08:00-24:00=500kbit".parse(), window(480, 0, Some(Bitrate::kbps(500))));
        for wrong in ["", "5", "1 Mbit", "0kbit", "1bit", "-1Mbit", "9e99Mbit", "nanMbit"] {
            assert!(wrong.parse::<Rate>().is_err(), "{wrong}");
        }
        for wrong in ["", "22:00", "22-6", "25:00-06:00", "24:01-06:00", "06:60-07:00", "1:00-2:00=", "1:00-2:00=x"] {
            assert!(wrong.parse::<Window>().is_err(), "{wrong}");
        }
    }
}
