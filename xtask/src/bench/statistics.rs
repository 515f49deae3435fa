//! What several pairs of runs say together.

use serde::Serialize;

/// The middle of some numbers, and how far they spread.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Spread {
    pub(crate) min: f64,
    /// A quarter of the numbers is below it.
    pub(crate) lower: f64,
    pub(crate) median: f64,
    /// A quarter of the numbers is above it.
    pub(crate) upper: f64,
    pub(crate) max: f64,
}

impl Spread {
    /// Of at least one number.
    pub(crate) fn of(numbers: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut sorted: Vec<f64> = numbers.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        Some(Self {
            min,
            lower: quantile(&sorted, 0.25),
            median: quantile(&sorted, 0.5),
            upper: quantile(&sorted, 0.75),
            max,
        })
    }
}

/// Between two numbers, in proportion.
fn quantile(sorted: &[f64], share: f64) -> f64 {
    let place = share * (sorted.len() - 1) as f64;
    let (below, above) = (sorted[place.floor() as usize], sorted[place.ceil() as usize]);
    below + (above - below) * place.fract()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_and_the_quarters_are_those_of_the_sorted_numbers() {
        let spread = Spread::of([5.0, 1.0, 4.0, 2.0, 3.0]).unwrap();
        assert_eq!(spread, Spread { min: 1.0, lower: 2.0, median: 3.0, upper: 4.0, max: 5.0 });
        let even = Spread::of([1.0, 2.0, 4.0, 8.0]).unwrap();
        assert_eq!((even.lower, even.median, even.upper), (1.75, 3.0, 5.0));
        let one = Spread::of([7.0]).unwrap();
        assert_eq!((one.min, one.lower, one.median, one.upper, one.max), (7.0, 7.0, 7.0, 7.0, 7.0));
        assert_eq!(Spread::of([]), None);
    }
}
