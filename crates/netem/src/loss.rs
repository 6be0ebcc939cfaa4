//! Loss on the wire: independent, or in bursts after Gilbert and Elliott.

use rand_core::Rng;
use rand_pcg::Pcg32;

/// A probability from 0 to 1, in steps of 2⁻³² (one packet in four thousand million).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Probability {
    /// A 32-bit number drawn evenly lies below this just so often.
    threshold: u64,
}

/// The number is no probability.
#[derive(Clone, Copy, PartialEq, Debug, thiserror::Error)]
#[error("a probability lies between 0 and 1, and {0} does not")]
pub struct ProbabilityError(pub f64);

impl Probability {
    /// Never.
    pub const ZERO: Self = Self { threshold: 0 };
    /// Always.
    pub const ONE: Self = Self { threshold: Self::STEPS };

    const STEPS: u64 = 1 << 32;

    /// `value` from 0 to 1.
    ///
    /// # Errors
    /// If it lies outside, or is not a number.
    pub fn new(value: f64) -> Result<Self, ProbabilityError> {
        if !(0.0..=1.0).contains(&value) {
            return Err(ProbabilityError(value));
        }
        Ok(Self { threshold: (value * Self::STEPS as f64 + 0.5) as u64 })
    }

    /// Whole per cent.
    ///
    /// # Panics
    /// If it is more than 100; numbers from outside come through [`Probability::new`].
    pub const fn percent(percent: u8) -> Self {
        assert!(percent <= 100, "a hundred per cent is all there is");
        Self { threshold: (Self::STEPS * percent as u64 + 50) / 100 }
    }

    /// From 0 to 1.
    pub const fn as_f64(self) -> f64 {
        self.threshold as f64 / Self::STEPS as f64
    }

    fn roll(self, dice: &mut Pcg32) -> bool {
        u64::from(dice.next_u32()) < self.threshold
    }
}

/// Which packets are lost on the wire.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub enum Loss {
    /// None.
    #[default]
    None,
    /// Each with the same probability, whatever happened to the others.
    Independent(Probability),
    /// In bursts.
    GilbertElliott(GilbertElliott),
}

impl Loss {
    /// The share of packets lost in the long run, from 0 to 1.
    pub fn mean(&self) -> f64 {
        match self {
            Self::None => 0.0,
            Self::Independent(probability) => probability.as_f64(),
            Self::GilbertElliott(model) => model.mean(),
        }
    }
}

/// The two-state Markov chain of Gilbert (1960) and Elliott (1963): a good state and a bad one, each with a loss of
/// its own. A packet meets the present state; then the state may change. The chain begins in the good state.
///
/// ```text
///              to_bad (p)
///        ┌──────────────────▶┐
///      good                 bad
///        └◀──────────────────┘
///              to_good (r)
/// ```
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct GilbertElliott {
    /// The probability p of going from good to bad after a packet.
    pub to_bad: Probability,
    /// The probability r of going from bad to good after a packet.
    pub to_good: Probability,
    /// The loss in the good state (1−k).
    pub loss_good: Probability,
    /// The loss in the bad state (1−h).
    pub loss_bad: Probability,
}

impl GilbertElliott {
    /// Gilbert's simple form, in which the good state loses nothing and the bad one all, by what one can measure:
    /// the mean loss, and the mean number of packets that are lost in a row.
    ///
    /// # Errors
    /// If `mean` lies outside 0 to 1, `burst` is below 1, or the two contradict each other: a loss that is more
    /// than `burst / (burst + 1)` cannot come in bursts so short.
    pub fn bursts(mean: f64, burst: f64) -> Result<Self, ProbabilityError> {
        let mean = Probability::new(mean)?.as_f64();
        let to_good = Probability::new(1.0 / burst)?;
        let to_bad = Probability::new(to_good.as_f64() * mean / (1.0 - mean))?;
        Ok(Self { to_bad, to_good, loss_good: Probability::ZERO, loss_bad: Probability::ONE })
    }

    /// The share of packets lost in the long run: each state's loss, weighed by the share of time spent in it.
    pub fn mean(&self) -> f64 {
        let (p, r) = (self.to_bad.as_f64(), self.to_good.as_f64());
        // A chain that never moves stays where it began.
        let bad = if p + r > 0.0 { p / (p + r) } else { 0.0 };
        (1.0 - bad) * self.loss_good.as_f64() + bad * self.loss_bad.as_f64()
    }

    /// The mean number of packets that meet the bad state in a row, 1/r; infinite if it never ends.
    pub fn mean_burst(&self) -> f64 {
        1.0 / self.to_good.as_f64()
    }
}

/// A [`Loss`] at work: the model, where it stands, and its dice.
#[derive(Debug)]
pub(crate) struct LossProcess {
    model: Loss,
    bad: bool,
    dice: Pcg32,
}

impl LossProcess {
    pub(crate) fn new(model: Loss, dice: Pcg32) -> Self {
        Self { model, bad: false, dice }
    }

    pub(crate) fn set_model(&mut self, model: Loss) {
        self.model = model;
        self.bad = false;
    }

    /// Whether the next packet is lost.
    pub(crate) fn next_is_lost(&mut self) -> bool {
        match self.model {
            Loss::None => false,
            Loss::Independent(probability) => probability.roll(&mut self.dice),
            Loss::GilbertElliott(model) => {
                let (loss, change) = match self.bad {
                    false => (model.loss_good, model.to_bad),
                    true => (model.loss_bad, model.to_good),
                };
                let lost = loss.roll(&mut self.dice);
                self.bad ^= change.roll(&mut self.dice);
                lost
            }
        }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    #[test]
    fn what_is_no_probability_is_refused() {
        for wrong in [-0.1, 1.000_1, f64::NAN, f64::INFINITY] {
            assert!(Probability::new(wrong).is_err(), "{wrong}");
        }
        assert_eq!(Probability::new(0.0), Ok(Probability::ZERO));
        assert_eq!(Probability::new(1.0), Ok(Probability::ONE));
    }

    #[test]
    fn bursts_that_cannot_be_are_refused() {
        assert!(GilbertElliott::bursts(0.9, 2.0).is_err(), "nine in ten lost, two in a row");
        assert!(GilbertElliott::bursts(0.1, 0.5).is_err(), "half a packet in a row");
        assert!(GilbertElliott::bursts(1.1, 2.0).is_err());
        assert!(GilbertElliott::bursts(1.0, 2.0).is_err(), "all lost, yet bursts end");
        let model = GilbertElliott::bursts(0.05, 4.0).unwrap();
        assert!((model.mean() - 0.05).abs() < 1e-6);
        assert!((model.mean_burst() - 4.0).abs() < 1e-6);
    }

    #[test]
    fn zero_loses_nothing_and_one_loses_all() {
        for (probability, lost) in [(Probability::ZERO, 0), (Probability::ONE, 1_000)] {
            assert_eq!(run(Loss::Independent(probability), 3, 1_000).iter().filter(|l| **l).count(), lost);
        }
    }

    proptest! {
        #[test]
        fn independent_loss_has_its_mean(probability in 0.0f64..1.0, seed: u64) {
            let n = 20_000;
            let lost = run(Loss::Independent(Probability::new(probability).unwrap()), seed, n);
            let mean = lost.iter().filter(|lost| **lost).count() as f64 / f64::from(n);
            let sigma = (probability * (1.0 - probability) / f64::from(n)).sqrt();
            prop_assert!((mean - probability).abs() <= 6.0 * sigma + 1e-9, "{} is not {}", mean, probability);
        }

        #[test]
        fn gilbert_elliott_has_its_mean_loss_and_burst_length(
            loss in 0.01f64..0.4, burst in 1.5f64..8.0, seed: u64,
        ) {
            let n = 100_000;
            let model = GilbertElliott::bursts(loss, burst).unwrap();
            let lost = run(Loss::GilbertElliott(model), seed, n);
            let count = lost.iter().filter(|lost| **lost).count() as f64;
            let bursts = lost.windows(2).filter(|pair| !pair[0] && pair[1]).count() as f64;

            // The states of successive packets are correlated by 1−p−r, which widens the mean's spread.
            let rho = 1.0 - model.to_bad.as_f64() - model.to_good.as_f64();
            let sigma = (loss * (1.0 - loss) / f64::from(n) * (1.0 + rho) / (1.0 - rho)).sqrt();
            let mean = count / f64::from(n);
            prop_assert!((mean - loss).abs() <= 6.0 * sigma, "mean {} is not {}", mean, loss);

            // Bursts are geometric with mean 1/r.
            let r = model.to_good.as_f64();
            let sigma = (1.0 - r).sqrt() / r / bursts.sqrt();
            let length = count / bursts;
            prop_assert!((length - burst).abs() <= 6.0 * sigma + 1.0 / bursts, "burst {} is not {}", length, burst);
        }
    }

    fn run(model: Loss, seed: u64, packets: u32) -> Vec<bool> {
        let mut process = LossProcess::new(model, Pcg32::new(seed, 1));
        (0..packets).map(|_| process.next_is_lost()).collect()
    }
}
