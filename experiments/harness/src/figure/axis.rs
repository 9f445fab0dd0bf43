//! Axes: the mapping of values to pixels, and the ticks.

use std::ops::Range;

use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, ValueFormatter};
use plotters::prelude::Ranged;

/// One axis of a panel.
pub struct Axis {
    /// The title beside the axis.
    pub title: String,
    /// The scale.
    pub scale: Scale,
    /// The first and the last value; `None`: the range of the drawn values with a margin.
    pub range: Option<(f64, f64)>,
    /// Values and their labels; empty: round numbers.
    pub ticks: Vec<(f64, String)>,
}

/// The scale of an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Linear, beginning at 0.
    Linear,
    /// Logarithmic.
    Log,
}

/// An axis with its final range and ticks.
pub(super) struct FittedAxis {
    scale: Scale,
    pub(super) start: f64,
    end: f64,
    ticks: Vec<(f64, String)>,
}

impl Axis {
    /// With round numbers as ticks.
    pub fn new(title: &str, scale: Scale) -> Self {
        Self { title: title.to_owned(), scale, range: None, ticks: Vec::new() }
    }

    /// Logarithmic, with ticks at the powers of two between these two.
    pub fn powers_of_two(title: &str, from: u32, to: u32) -> Self {
        let powers = std::iter::successors(Some(from), |power| power.checked_mul(2));
        let ticks = powers.take_while(|power| *power <= to);
        Self {
            title: title.to_owned(),
            scale: Scale::Log,
            range: Some((f64::from(from) * 0.9, f64::from(to) * 1.1)),
            ticks: ticks.map(|power| (f64::from(power), power.to_string())).collect(),
        }
    }

    /// The axis fitted to these values.
    pub(super) fn fit(&self, values: impl Iterator<Item = f64>) -> FittedAxis {
        let (low, high) = self.range.unwrap_or_else(|| self.range_of(values));
        let ticks = match (&self.ticks[..], self.scale) {
            ([], Scale::Linear) => labelled(linear_ticks(high)),
            ([], Scale::Log) => labelled(log_ticks(low, high)),
            (ticks, _) => ticks.to_vec(),
        };
        let ticks = ticks.into_iter().filter(|(value, _)| (low..=high).contains(value)).collect();
        FittedAxis { scale: self.scale, start: low, end: high, ticks }
    }

    /// The range of the values with a margin.
    fn range_of(&self, values: impl Iterator<Item = f64>) -> (f64, f64) {
        let positive = values.filter(|value| *value > 0.0);
        let (low, high) = positive
            .fold((f64::INFINITY, 0.0f64), |(low, high), value| (low.min(value), high.max(value)));
        match self.scale {
            _ if high <= 0.0 => (1.0, 10.0),
            Scale::Linear => (0.0, high * 1.08),
            Scale::Log => (low / 1.25, high * 1.25),
        }
    }
}

impl Scale {
    fn position(self, value: f64) -> f64 {
        match self {
            Self::Linear => value,
            Self::Log => value.max(f64::MIN_POSITIVE).log10(),
        }
    }
}

impl Ranged for FittedAxis {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, (from, to): (i32, i32)) -> i32 {
        let [start, end, value] = [self.start, self.end, *value].map(|at| self.scale.position(at));
        from + (f64::from(to - from) * (value - start) / (end - start)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        // No grid lines between the ticks.
        let ticks = if hint.weight().allow_light_points() { &[] } else { &self.ticks[..] };
        ticks.iter().map(|(value, _)| *value).collect()
    }

    fn range(&self) -> Range<f64> {
        self.start..self.end
    }
}

impl ValueFormatter<f64> for FittedAxis {
    fn format_ext(&self, value: &f64) -> String {
        let tick = self.ticks.iter().find(|(at, _)| at == value);
        tick.map(|(_, text)| text.clone()).unwrap_or_default()
    }
}

fn labelled(values: Vec<f64>) -> Vec<(f64, String)> {
    values.into_iter().map(|value| (value, number(value))).collect()
}

/// Four to eight round steps from 0.
fn linear_ticks(high: f64) -> Vec<f64> {
    let power = 10f64.powf((high / 4.0).log10().floor());
    let step = [5.0, 2.0, 1.0].map(|digit| digit * power);
    let step = step.into_iter().find(|step| high / step >= 4.0).unwrap_or(power);
    (0u32..).map(|n| f64::from(n) * step).take_while(|value| *value <= high).collect()
}

/// 1, 2 and 5 times each power of ten, or only the powers if the range is above 2000.
fn log_ticks(low: f64, high: f64) -> Vec<f64> {
    let powers = low.log10().floor() as i32..=high.log10().ceil() as i32;
    let digits = if high / low > 2e3 { &[1.0][..] } else { &[1.0, 2.0, 5.0] };
    powers.flat_map(|power| digits.iter().map(move |digit| digit * 10f64.powi(power))).collect()
}

/// At most four decimals, without trailing zeros.
fn number(value: f64) -> String {
    let text = format!("{value:.4}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(axis: &Axis, values: &[f64]) -> Vec<String> {
        let ticks = axis.fit(values.iter().copied()).ticks;
        ticks.into_iter().map(|(_, text)| text).collect()
    }

    #[test]
    fn ticks_are_round_numbers_within_the_axis() {
        let linear = Axis::new("", Scale::Linear);
        assert_eq!(texts(&linear, &[3.0, 123.0]), ["0", "20", "40", "60", "80", "100", "120"]);
        assert_eq!(texts(&linear, &[0.9]), ["0", "0.2", "0.4", "0.6", "0.8"]);
        let log = Axis::new("", Scale::Log);
        assert_eq!(texts(&log, &[20.0, 130.0]), ["20", "50", "100"]);
        assert_eq!(texts(&log, &[0.05, 200.0]), ["0.1", "1", "10", "100"]);
    }

    #[test]
    fn an_axis_without_values_has_a_length() {
        for scale in [Scale::Linear, Scale::Log] {
            let axis = Axis::new("", scale).fit(std::iter::empty());
            assert!(axis.start < axis.end);
        }
    }

    #[test]
    fn block_lengths_are_powers_of_two() {
        let axis = Axis::powers_of_two("", 64, 4096);
        assert_eq!(texts(&axis, &[]), ["64", "128", "256", "512", "1024", "2048", "4096"]);
    }
}
