//! Figures for `docs/figures/`: a column of panels with axes, units, limits and a legend, as one SVG file.
//!
//! ```no_run
//! use hoop_bench::chart::{Axis, Figure, Panel, Series};
//! let rate = Series::line("rate", vec![(0.0, 1.0), (1.0, 1.1)]);
//! let panel = Panel::new(Axis::new("time, s"), Axis::new("Mbit/s").from(0.0)).series(rate).limit("the line's rate", 1.15);
//! Figure::new("What the uplink carries").panel(panel).save("uplink").unwrap();
//! ```

use plotters::coord::Shift;
use plotters::prelude::*;
use std::error::Error;
use std::path::{Path, PathBuf};

/// Colours that people with any kind of sight tell apart (Okabe and Ito), strongest first.
const COLOURS: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(90, 90, 90),
];

const GREY: RGBColor = RGBColor(110, 110, 110);
const WIDTH: u32 = 900;

/// What a legend takes beside its panel.
const LEGEND_WIDTH: u32 = 210;
const TITLE_HEIGHT: u32 = 44;
const FONT: &str = "sans-serif";

/// One axis: what it measures, with its unit, and how far it goes.
#[derive(Clone, Debug)]
pub struct Axis {
    label: String,
    from: Option<f64>,
    to: Option<f64>,
    names: Vec<String>,
}

impl Axis {
    /// An axis as long as what it shows.
    pub fn new(label: &str) -> Self {
        Self { label: label.to_owned(), from: None, to: None, names: Vec::new() }
    }

    /// An axis of things rather than numbers: the first stands at 0, the second at 1, and so on.
    pub fn of_names(label: &str, names: &[&str]) -> Self {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let (from, to) = (Some(-0.5), Some(names.len() as f64 - 0.5));
        Self { label: label.to_owned(), from, to, names }
    }

    /// The same, beginning there.
    pub const fn from(mut self, from: f64) -> Self {
        self.from = Some(from);
        self
    }

    /// The same, ending there.
    pub const fn to(mut self, to: f64) -> Self {
        self.to = Some(to);
        self
    }

    /// From where to where, for these values; a little room above what was not given.
    fn range(&self, values: impl Iterator<Item = f64>) -> std::ops::Range<f64> {
        let (low, high) = values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| (low.min(v), high.max(v)));
        let (low, high) = if low > high { (0.0, 1.0) } else { (low, high) };
        let from = self.from.unwrap_or(low);
        let to = self.to.unwrap_or(high + (high - from) * 0.05);
        from..if to > from { to } else { from + 1.0 }
    }

    fn text(&self, value: f64, range: &std::ops::Range<f64>) -> String {
        if !self.names.is_empty() {
            let name = self.names.get(value.round().max(0.0) as usize).filter(|_| (value - value.round()).abs() < 0.01);
            return name.cloned().unwrap_or_default();
        }
        match range.end - range.start {
            ..0.5 => format!("{value:.2}"),
            0.5..5.0 => format!("{value:.1}"),
            _ => format!("{value:.0}"),
        }
    }
}

/// How a series is drawn.
#[derive(Clone, Copy, Debug)]
enum Style {
    Line,
    Dots,
    Area,
    Bars { width: f64 },
}

/// Values that belong together.
#[derive(Clone, Debug)]
pub struct Series {
    name: String,
    points: Vec<(f64, f64)>,
    style: Style,
    /// A position in [`COLOURS`]; none: the next.
    colour: Option<usize>,
}

impl Series {
    /// A line through its points. A value that is not a number breaks it.
    pub fn line(name: &str, points: Vec<(f64, f64)>) -> Self {
        Self { name: name.to_owned(), points, style: Style::Line, colour: None }
    }

    /// Its points alone.
    pub fn dots(name: &str, points: Vec<(f64, f64)>) -> Self {
        Self { style: Style::Dots, ..Self::line(name, points) }
    }

    /// The area below its points.
    pub fn area(name: &str, points: Vec<(f64, f64)>) -> Self {
        Self { style: Style::Area, ..Self::line(name, points) }
    }

    /// A bar of this width at each point, in units of the x axis. Bars side by side: move their points apart by the width.
    pub fn bars(name: &str, width: f64, points: Vec<(f64, f64)>) -> Self {
        Self { style: Style::Bars { width }, ..Self::line(name, points) }
    }

    /// The same in a certain colour, for one thing in several panels: 0 blue, 1 red, 2 green, 3 pink, 4 yellow, 5 light blue, 6 grey.
    pub const fn colour(mut self, colour: usize) -> Self {
        self.colour = Some(colour);
        self
    }
}

/// One pair of axes.
#[derive(Clone, Debug)]
pub struct Panel {
    x: Axis,
    y: Axis,
    series: Vec<Series>,
    limits: Vec<(String, f64)>,
    spans: Vec<(f64, f64)>,
    height: u32,
}

impl Panel {
    /// A panel with these axes and nothing on it.
    pub const fn new(x: Axis, y: Axis) -> Self {
        Self { x, y, series: Vec::new(), limits: Vec::new(), spans: Vec::new(), height: 260 }
    }

    /// The same with values.
    pub fn series(mut self, series: Series) -> Self {
        self.series.push(series);
        self
    }

    /// The same with a dashed line across: a limit, a capacity.
    pub fn limit(mut self, name: &str, value: f64) -> Self {
        self.limits.push((name.to_owned(), value));
        self
    }

    /// The same with a stretch of the x axis shaded: what goes on meanwhile is for the title to say.
    pub fn span(mut self, from: f64, to: f64) -> Self {
        self.spans.push((from, to));
        self
    }

    /// The same with another height, in pixels.
    pub const fn height(mut self, height: u32) -> Self {
        self.height = height;
        self
    }

    fn draw<'a>(&self, area: &DrawingArea<SVGBackend<'a>, Shift>) -> Result<(), Box<dyn Error + 'a>> {
        let points = || self.series.iter().flat_map(|series| &series.points);
        let finite = |value: &f64| value.is_finite();
        let x = self.x.range(points().map(|point| point.0).filter(finite));
        let limits = self.limits.iter().map(|limit| limit.1);
        let y = self.y.range(points().map(|point| point.1).chain(limits).filter(finite));
        let has_bars = self.series.iter().any(|series| matches!(series.style, Style::Bars { .. }));
        let mut chart = ChartBuilder::on(area)
            .margin(10)
            .margin_right(if has_bars { LEGEND_WIDTH + 24 } else { 24 })
            .x_label_area_size(44)
            .y_label_area_size(64)
            .build_cartesian_2d(x.clone(), y.clone())?;
        for (from, to) in &self.spans {
            let corners = [(*from, y.start), (*to, y.end)];
            chart.draw_series([Rectangle::new(corners, RGBColor(240, 236, 220).filled())])?;
        }
        let names = self.x.names.len();
        chart
            .configure_mesh()
            .disable_x_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(BLACK.mix(0.12))
            .axis_style(GREY)
            .label_style((FONT, 13))
            .axis_desc_style((FONT, 14))
            .x_labels(if names > 0 { 2 * names + 1 } else { 13 })
            .y_labels(6)
            .x_label_formatter(&|value| self.x.text(*value, &x))
            .y_label_formatter(&|value| self.y.text(*value, &y))
            .x_desc(&self.x.label)
            .y_desc(&self.y.label)
            .draw()?;
        for (position, series) in self.series.iter().enumerate() {
            let colour = COLOURS[series.colour.unwrap_or(position) % COLOURS.len()];
            let key = move |(x, y): (i32, i32)| Rectangle::new([(x, y - 4), (x + 14, y + 4)], colour.filled());
            let pieces = series.points.split(|point| !point.1.is_finite()).filter(|piece| !piece.is_empty());
            match series.style {
                Style::Line => {
                    for (number, piece) in pieces.enumerate() {
                        let line = LineSeries::new(piece.iter().copied(), colour.stroke_width(2));
                        let drawn = chart.draw_series(line)?;
                        if number == 0 {
                            drawn.label(&series.name).legend(key);
                        }
                    }
                }
                Style::Dots => {
                    let dots = pieces.flatten().map(|point| Circle::new(*point, 2, colour.filled()));
                    chart.draw_series(dots)?.label(&series.name).legend(key);
                }
                Style::Area => {
                    let points = pieces.flatten().copied();
                    let area = AreaSeries::new(points, y.start, colour.mix(0.35)).border_style(colour);
                    chart.draw_series(area)?.label(&series.name).legend(key);
                }
                Style::Bars { width } => {
                    let bar = |point: &(f64, f64)| {
                        let (left, right) = (point.0 - width / 2.0, point.0 + width / 2.0);
                        Rectangle::new([(left, y.start), (right, point.1)], colour.filled())
                    };
                    chart.draw_series(pieces.flatten().map(bar))?.label(&series.name).legend(key);
                }
            }
        }
        for (name, value) in &self.limits {
            let ends = [(x.start, *value), (x.end, *value)];
            let line = DashedLineSeries::new(ends, 7, 5, BLACK.stroke_width(1));
            let key = |(x, y)| PathElement::new([(x, y), (x + 14, y)], BLACK.stroke_width(1));
            chart.draw_series(line)?.label(name).legend(key);
        }
        // Bars leave no room for it.
        let right = i32::try_from(chart.plotting_area().dim_in_pixel().0)?;
        let beside = SeriesLabelPosition::Coordinate(right + 10, 0);
        chart
            .configure_series_labels()
            .position(if has_bars { beside } else { SeriesLabelPosition::UpperRight })
            .background_style(WHITE.mix(0.85))
            .border_style(BLACK.mix(0.2))
            .label_font((FONT, 13))
            .draw()?;
        Ok(())
    }
}

/// A figure: panels one below the other, under a title.
#[derive(Clone, Debug)]
pub struct Figure {
    title: String,
    panels: Vec<Panel>,
}

impl Figure {
    /// A figure with nothing on it.
    pub fn new(title: &str) -> Self {
        Self { title: title.to_owned(), panels: Vec::new() }
    }

    /// The same with another panel below.
    pub fn panel(mut self, panel: Panel) -> Self {
        self.panels.push(panel);
        self
    }

    /// Writes `docs/figures/NAME.svg` and returns its path.
    ///
    /// # Errors
    /// If it cannot be drawn or written.
    pub fn save(&self, name: &str) -> Result<PathBuf, Box<dyn Error>> {
        let project = Path::new(env!("CARGO_MANIFEST_DIR")).parent().ok_or("this crate lies in the project")?;
        let folder = project.join("docs/figures");
        std::fs::create_dir_all(&folder)?;
        let path = folder.join(format!("{name}.svg"));
        let svg = self.render().map_err(|error| error.to_string())?;
        std::fs::write(&path, svg)?;
        Ok(path)
    }

    /// The figure as SVG.
    ///
    /// # Errors
    /// If it cannot be drawn.
    pub fn render(&self) -> Result<String, String> {
        let mut svg = String::new();
        let height = TITLE_HEIGHT + self.panels.iter().map(|panel| panel.height).sum::<u32>();
        let root = SVGBackend::with_string(&mut svg, (WIDTH, height)).into_drawing_area();
        self.draw(&root).map_err(|error| error.to_string())?;
        drop(root);
        Ok(svg)
    }

    fn draw<'a>(&self, root: &DrawingArea<SVGBackend<'a>, Shift>) -> Result<(), Box<dyn Error + 'a>> {
        root.fill(&WHITE)?;
        root.draw(&Text::new(self.title.clone(), (18, 14), (FONT, 18)))?;
        let mut rest = root.split_vertically(TITLE_HEIGHT).1;
        for panel in &self.panels {
            let (area, below) = rest.split_vertically(panel.height);
            panel.draw(&area)?;
            rest = below;
        }
        root.present()?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_names_its_axes_series_and_limits() {
        let line = Series::line("goodput", vec![(0.0, 1.0), (1.0, f64::NAN), (2.0, 3.0), (3.0, 2.0)]);
        let bars = Series::bars("nginx", 0.3, vec![(0.0, 1.0), (1.0, 2.0)]);
        let figure = Figure::new("A & B")
            .panel(Panel::new(Axis::new("time, s"), Axis::new("Mbit/s").from(0.0)).series(line).limit("the line", 1.15))
            .panel(Panel::new(Axis::of_names("posts", &["1 MB", "10 MB"]), Axis::new("GB/s").from(0.0)).series(bars));
        let svg = figure.render().unwrap();
        for text in ["A &amp; B", "time, s", "Mbit/s", "goodput", "the line", "posts", "10 MB", "nginx"] {
            assert!(svg.contains(text), "{text}");
        }
    }
}
