//! Figures: lines over a logarithmic axis, in panels side by side, as SVG.

use std::ops::Range;
use std::path::Path;

use plotters::coord::combinators::IntoLogRange;
use plotters::prelude::*;

use crate::HarnessError;

/// The size of one panel in pixels.
const PANEL: (u32, u32) = (560, 400);
/// The colours of series: told apart by people who see no red or no green too (Okabe and Ito).
const COLOURS: [RGBColor; 6] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(230, 159, 0),
];
const GREY: RGBColor = RGBColor(110, 110, 110);

/// Panels of one figure.
pub struct Figure {
    /// Above all panels.
    pub title: String,
    /// Two in a row.
    pub panels: Vec<Panel>,
}

/// One pair of axes.
pub struct Panel {
    /// Above it.
    pub title: String,
    /// Under the horizontal axis, which is logarithmic.
    pub x: String,
    /// Beside the vertical axis.
    pub y: String,
    /// Whether the vertical axis is logarithmic too.
    pub log_y: bool,
    /// What is drawn.
    pub series: Vec<Series>,
}

/// One line.
pub struct Series {
    /// In the legend.
    pub name: String,
    /// Which colour: series of one number belong together.
    pub colour: usize,
    /// How it is drawn.
    pub stroke: Stroke,
    /// Where it goes.
    pub points: Vec<(f64, f64)>,
}

/// How a line is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stroke {
    /// With a mark at each point.
    Marked,
    /// Broken.
    Dashed,
    /// Thin and grey, a limit.
    Limit,
}

impl Figure {
    /// Draws it to an SVG file.
    ///
    /// # Errors
    /// [`HarnessError::Figure`] if there is nothing to draw or the file cannot be written.
    pub fn draw(&self, path: &Path) -> Result<(), HarnessError> {
        let failed = |reason: String| HarnessError::Figure { path: path.to_owned(), reason };
        self.try_draw(path).map_err(|error| failed(error.to_string()))
    }

    fn try_draw(&self, path: &Path) -> Result<(), Box<dyn std::error::Error + '_>> {
        let columns = self.panels.len().clamp(1, 2);
        let rows = self.panels.len().div_ceil(columns).max(1);
        let size = (PANEL.0 * columns as u32, PANEL.1 * rows as u32 + 36);
        let root = SVGBackend::new(path, size).into_drawing_area();
        root.fill(&WHITE)?;
        let root = root.titled(&self.title, ("sans-serif", 20))?;
        for (panel, area) in self.panels.iter().zip(root.split_evenly((rows, columns))) {
            if panel.log_y {
                panel.draw_log(&area)?;
            } else {
                panel.draw_linear(&area)?;
            }
        }
        root.present()?;
        Ok(())
    }
}

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;
type Drawn = Result<(), Box<dyn std::error::Error>>;

/// The body of both kinds of panel: their types differ, their text does not.
macro_rules! draw {
    ($panel:expr, $area:expr, $y:expr) => {{
        let x = $panel.range(|point| point.0);
        let mut chart = ChartBuilder::on($area)
            .caption(&$panel.title, ("sans-serif", 15))
            .margin(12)
            .x_label_area_size(42)
            .y_label_area_size(62)
            .build_cartesian_2d((x.start..x.end).log_scale(), $y)?;
        chart
            .configure_mesh()
            .x_desc($panel.x.as_str())
            .y_desc($panel.y.as_str())
            .light_line_style(WHITE)
            .bold_line_style(RGBColor(225, 225, 225))
            .x_label_formatter(&|value| number(*value))
            .y_label_formatter(&|value| number(*value))
            .draw()?;
        for series in &$panel.series {
            let style = series.style();
            let points = series.points.iter().copied();
            let drawn = match series.stroke {
                Stroke::Marked => {
                    let marks = series.points.iter().map(|&at| Circle::new(at, 3, style.filled()));
                    chart.draw_series(marks)?;
                    chart.draw_series(LineSeries::new(points, style))?
                }
                _ => chart.draw_series(DashedLineSeries::new(points, 6, 4, style))?,
            };
            if !series.name.is_empty() {
                let line = move |(x, y)| PathElement::new([(x, y), (x + 18, y)], style);
                drawn.label(series.name.as_str()).legend(line);
            }
        }
        chart
            .configure_series_labels()
            .background_style(WHITE.mix(0.85))
            .border_style(RGBColor(200, 200, 200))
            .position(SeriesLabelPosition::UpperLeft)
            .label_font(("sans-serif", 12))
            .draw()?;
        Ok(())
    }};
}

impl Panel {
    fn draw_linear(&self, area: &Area<'_>) -> Drawn {
        let y = self.range(|point| point.1);
        draw!(self, area, 0.0..y.end * 1.25)
    }

    fn draw_log(&self, area: &Area<'_>) -> Drawn {
        let y = self.range(|point| point.1);
        draw!(self, area, (y.start * 0.7..y.end * 3.0).log_scale())
    }

    /// From the least to the greatest positive value of all series.
    fn range(&self, of: impl Fn(&(f64, f64)) -> f64) -> Range<f64> {
        let values = self.series.iter().flat_map(|series| &series.points).map(of);
        let positive = values.filter(|value| *value > 0.0);
        let (low, high) = positive
            .fold((f64::INFINITY, 0.0f64), |(low, high), value| (low.min(value), high.max(value)));
        if high <= 0.0 {
            1.0..10.0
        } else if low < high {
            low..high
        } else {
            low / 2.0..high * 2.0
        }
    }
}

impl Series {
    fn style(&self) -> ShapeStyle {
        let colour = COLOURS[self.colour % COLOURS.len()];
        match self.stroke {
            Stroke::Marked => colour.stroke_width(2),
            Stroke::Dashed => colour.stroke_width(2),
            Stroke::Limit => GREY.stroke_width(1),
        }
    }
}

/// Without digits that say nothing.
fn number(value: f64) -> String {
    if value >= 10.0 || value.fract() == 0.0 {
        return format!("{value:.0}");
    }
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_has_its_titles_and_its_series() {
        let series = |name: &str, stroke| Series {
            name: name.into(),
            colour: 0,
            stroke,
            points: vec![(64.0, 1.0), (512.0, 3.0), (4096.0, 2.0)],
        };
        let panel = |log_y| Panel {
            title: "256 bytes".into(),
            x: "block length".into(),
            y: "MB/s".into(),
            log_y,
            series: vec![series("auto", Stroke::Dashed), series("block", Stroke::Marked)],
        };
        let figure = Figure { title: "Throughput".into(), panels: vec![panel(false), panel(true)] };
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("figure.svg");
        figure.draw(&path).unwrap();
        let text = std::fs::read_to_string(path).unwrap();
        for expected in ["Throughput", "256 bytes", "block length", "MB/s", "auto", "block"] {
            assert!(text.contains(expected), "{expected}");
        }
    }

    #[test]
    fn nothing_to_draw_is_drawn_empty() {
        let panel = Panel {
            title: String::new(),
            x: String::new(),
            y: String::new(),
            log_y: true,
            series: Vec::new(),
        };
        let folder = tempfile::tempdir().unwrap();
        let figure = Figure { title: String::new(), panels: vec![panel] };
        figure.draw(&folder.path().join("empty.svg")).unwrap();
    }
}
