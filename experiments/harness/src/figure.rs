//! Figures: panels with one legend above them, as SVG.

mod axis;
mod drawing;

pub use axis::{Axis, Scale};

use std::path::Path;

use crate::HarnessError;

/// Panels of one figure.
pub struct Figure {
    /// The title above all panels.
    pub title: String,
    /// The number of panels in a row.
    pub columns: usize,
    /// Width and height of one panel in pixels.
    pub size: (u32, u32),
    /// In row-major order.
    pub panels: Vec<Panel>,
}

/// One pair of axes.
pub struct Panel {
    /// The title above the panel.
    pub title: String,
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// Drawn in order, later ones over earlier ones.
    pub series: Vec<Series>,
    /// Labels under the horizontal axis's numbers, by their position on the axis.
    pub groups: Vec<(f64, String)>,
}

/// The points of one line or set of marks.
pub struct Series {
    /// The name in the legend; series with the same name, colour and stroke share an entry. Empty:
    /// no entry.
    pub name: String,
    /// The index of the colour, which related series share.
    pub colour: usize,
    /// How the points are drawn.
    pub stroke: Stroke,
    /// The points.
    pub points: Vec<(f64, f64)>,
}

/// How points are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stroke {
    /// A line with a mark at each point.
    Marked,
    /// A dashed line.
    Dashed,
    /// A dotted line.
    Dotted,
    /// A thin grey line: a limit.
    Limit,
    /// A thin line between each pair of points: a range.
    Span,
    /// Marks without a line: discs.
    Disc,
    /// Marks without a line: triangles.
    Triangle,
    /// Marks without a line: short horizontal bars.
    Bar,
}

impl Figure {
    /// Draws the figure to an SVG file.
    ///
    /// # Errors
    /// [`HarnessError::Figure`] if the file cannot be written.
    pub fn draw(&self, path: &Path) -> Result<(), HarnessError> {
        self.try_draw(path).map_err(|error| HarnessError::Figure {
            path: path.to_owned(),
            reason: error.to_string(),
        })
    }

    /// The first series of each name, stroke and colour, in order.
    fn legend(&self) -> Vec<&Series> {
        let mut legend: Vec<&Series> = Vec::new();
        for series in self.panels.iter().flat_map(|panel| &panel.series) {
            let same = |known: &&Series| {
                known.name == series.name
                    && known.stroke == series.stroke
                    && known.colour == series.colour
            };
            if !series.name.is_empty() && !legend.iter().any(same) {
                legend.push(series);
            }
        }
        legend
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(name: &str, stroke: Stroke) -> Series {
        let points = vec![(64.0, 1.0), (512.0, 3.0), (4096.0, 2.0)];
        Series { name: name.into(), colour: 0, stroke, points }
    }

    fn panel(scale: Scale, series: Vec<Series>) -> Panel {
        Panel {
            title: "256 bytes".into(),
            x: Axis::powers_of_two("block length", 64, 4096),
            y: Axis::new("MB/s", scale),
            series,
            groups: vec![(512.0, "a group".into())],
        }
    }

    fn drawn(panels: Vec<Panel>) -> String {
        let figure = Figure { title: "Throughput".into(), columns: 2, size: (500, 300), panels };
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("figure.svg");
        figure.draw(&path).unwrap();
        std::fs::read_to_string(path).unwrap()
    }

    #[test]
    fn a_figure_contains_its_titles_and_series() {
        let strokes = [Stroke::Marked, Stroke::Dashed, Stroke::Dotted, Stroke::Limit];
        let lines = || strokes.map(|stroke| series("auto", stroke)).into();
        let strokes = [Stroke::Span, Stroke::Disc, Stroke::Triangle, Stroke::Bar];
        let marks = strokes.map(|stroke| series("block", stroke)).into();
        let text = drawn(vec![panel(Scale::Linear, lines()), panel(Scale::Log, marks)]);
        let expected = ["Throughput", "256 bytes", "block length", "MB/s", "auto", "a group"];
        for expected in expected.into_iter().chain(["block", "4096", "1024"]) {
            assert!(text.contains(expected), "{expected}");
        }
    }

    #[test]
    fn the_legend_has_each_name_once() {
        let panels = || panel(Scale::Linear, vec![series("only", Stroke::Marked)]);
        assert_eq!(drawn(vec![panels(), panels()]).matches("only").count(), 1);
    }

    #[test]
    fn draws_a_figure_without_panels_or_series() {
        drawn(Vec::new());
        drawn(vec![panel(Scale::Log, Vec::new())]);
    }
}
