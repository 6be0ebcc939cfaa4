//! The hours of the day in which uploads are sent: [`Hours`].

use alloc::vec::Vec;
use core::fmt;
use hoop_units::Bitrate;

/// Minutes of a day.
pub const DAY_MINUTES: u16 = 24 * 60;

/// Windows of a day at most: one an hour.
pub const WINDOWS_MAX: usize = 24;

/// One daily window, in local time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DailyWindow {
    /// Its first minute since midnight.
    pub from: u16,
    /// The first minute after it. Not more than `from`: it goes over midnight; the same: it is the whole day.
    pub to: u16,
    /// The most that is sent within it, if there is a limit of its own.
    pub rate: Option<Bitrate>,
}

/// Windows that make no sense.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HoursError {
    /// A time is past midnight.
    NoTime(u16),
    /// Two of them overlap, so that nobody knows which holds.
    Overlap(DailyWindow, DailyWindow),
    /// More than [`WINDOWS_MAX`].
    TooMany,
}

/// Whether it is time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Opening {
    /// Uploads are sent, at this rate at most if there is one.
    Open(Option<Bitrate>),
    /// They are not, for so many more seconds.
    Shut {
        /// Until the next window.
        opens_in: u32,
    },
}

/// The daily windows in which uploads are sent; without any, it is always time.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Hours {
    windows: Vec<DailyWindow>,
}

impl Hours {
    /// These windows.
    ///
    /// # Errors
    /// [`HoursError`] if they contradict each other.
    pub fn new(windows: Vec<DailyWindow>) -> Result<Self, HoursError> {
        if windows.len() > WINDOWS_MAX {
            return Err(HoursError::TooMany);
        }
        for (place, window) in windows.iter().enumerate() {
            if let Some(wrong) = [window.from, window.to].into_iter().find(|minute| *minute >= DAY_MINUTES) {
                return Err(HoursError::NoTime(wrong));
            }
            // Two windows overlap if one of them begins within the other.
            let other = windows[..place].iter().find(|other| other.has(window.from) || window.has(other.from));
            if let Some(other) = other {
                return Err(HoursError::Overlap(*other, *window));
            }
        }
        Ok(Self { windows })
    }

    /// Whether it is time at this second of the local day.
    pub fn at(&self, second: u32) -> Opening {
        let minute = (second / 60 % u32::from(DAY_MINUTES)) as u16;
        if self.windows.is_empty() {
            return Opening::Open(None);
        }
        if let Some(window) = self.windows.iter().find(|window| window.has(minute)) {
            return Opening::Open(window.rate);
        }
        let day = u32::from(DAY_MINUTES) * 60;
        let until = |window: &DailyWindow| (u32::from(window.from) * 60 + day - second % day) % day;
        Opening::Shut { opens_in: self.windows.iter().map(until).min().unwrap_or(day) }
    }

    /// Whether there is any window, and so a time without.
    pub const fn is_limited(&self) -> bool {
        !self.windows.is_empty()
    }
}

impl DailyWindow {
    const fn has(&self, minute: u16) -> bool {
        match self.from < self.to {
            true => self.from <= minute && minute < self.to,
            false => self.from <= minute || minute < self.to,
        }
    }
}

impl fmt::Display for DailyWindow {
    /// `22:00-06:30`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (from, to) = (self.from, self.to);
        write!(f, "{:02}:{:02}-{:02}:{:02}", from / 60, from % 60, to / 60, to % 60)
    }
}

impl fmt::Display for HoursError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoTime(minute) => write!(f, "minute {minute} is past midnight"),
            Self::Overlap(one, other) => write!(f, "the windows {one} and {other} overlap"),
            Self::TooMany => write!(f, "there are more than {WINDOWS_MAX} windows"),
        }
    }
}

impl core::error::Error for HoursError {}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn window(from: u16, to: u16) -> DailyWindow {
        DailyWindow { from, to, rate: None }
    }

    /// Beside the plainest reference: each minute of the day is painted.
    #[test]
    fn every_second_of_a_day_is_as_a_painted_day_says() {
        for windows in [
            vec![window(22 * 60, 6 * 60 + 30)],
            vec![window(0, 1), window(23 * 60 + 59, 0)],
            vec![window(60, 120), window(120, 180), window(1_300, 30)],
            vec![window(700, 700)],
        ] {
            let mut day = [false; DAY_MINUTES as usize];
            for window in &windows {
                let mut minute = window.from;
                loop {
                    day[usize::from(minute)] = true;
                    minute = (minute + 1) % DAY_MINUTES;
                    if minute == window.to {
                        break;
                    }
                }
            }
            let hours = Hours::new(windows).unwrap();
            for second in (0..86_400_u32).step_by(7) {
                let open = |second: u32| day[(second / 60 % 1_440) as usize];
                match hours.at(second) {
                    Opening::Open(rate) => assert!(open(second) && rate.is_none(), "{second}"),
                    Opening::Shut { opens_in } => {
                        assert!(!open(second) && open(second + opens_in) && !open(second + opens_in - 1), "{second}");
                    }
                }
            }
        }
    }

    #[test]
    fn windows_that_overlap_or_lie_past_midnight_are_refused() {
        let over = |windows| matches!(Hours::new(windows), Err(HoursError::Overlap(..)));
        assert!(over(vec![window(60, 120), window(119, 180)]));
        assert!(over(vec![window(1_300, 100), window(60, 70)]));
        assert!(over(vec![window(5, 5), window(700, 710)]));
        assert_eq!(Hours::new(vec![window(0, 1_440)]), Err(HoursError::NoTime(1_440)));
        assert_eq!(Hours::new(vec![window(0, 0); 25]), Err(HoursError::TooMany));
        assert!(!over(vec![window(60, 120), window(120, 60)]), "they meet");
    }

    #[test]
    fn without_windows_it_is_always_time_and_a_window_may_have_a_rate() {
        assert_eq!(Hours::default().at(5), Opening::Open(None));
        let rate = Some(Bitrate::kbps(500));
        let hours = Hours::new(vec![DailyWindow { rate, ..window(480, 1_080) }]).unwrap();
        assert_eq!(hours.at(480 * 60), Opening::Open(rate));
    }
}
