//! The table of `hoop-lab check`, or its JSON.

use serde_json::json;
use std::ops::RangeInclusive;

/// One measurement beside its limits.
#[derive(Debug)]
pub struct Row {
    /// What was measured, such as `rate of UDP, up`.
    pub quantity: &'static str,
    /// What the link was set to, such as `30 Mbit/s`.
    pub setting: String,
    /// The unit of the limits and of the measurement.
    pub unit: &'static str,
    /// Where theory wants it.
    pub limits: RangeInclusive<f64>,
    /// Where it is.
    pub measured: f64,
}

impl Row {
    /// Whether the measurement lies within its limits.
    pub fn passes(&self) -> bool {
        self.limits.contains(&self.measured)
    }
}

/// Rows as they come: a table grows line by line, JSON is printed at the end.
#[derive(Debug)]
pub struct Report {
    json: bool,
    rows: Vec<Row>,
}

impl Report {
    /// Begins a table, unless it is to be JSON.
    pub fn start(json: bool) -> Self {
        if !json {
            line("QUANTITY", "SETTING", "LIMITS", "MEASURED", "UNIT", "");
        }
        Self { json, rows: Vec::new() }
    }

    /// Adds a row, and prints it if this is a table.
    pub fn add(&mut self, row: Row) {
        if !self.json {
            let limits = format!("{:.3} – {:.3}", row.limits.start(), row.limits.end());
            let verdict = if row.passes() { "PASS" } else { "FAIL" };
            line(row.quantity, &row.setting, &limits, &format!("{:.3}", row.measured), row.unit, verdict);
        }
        self.rows.push(row);
    }

    /// Prints what is left to print; says whether all rows pass.
    pub fn finish(&self) -> bool {
        let failed = self.rows.iter().filter(|row| !row.passes()).count();
        if self.json {
            let rows: Vec<_> = self.rows.iter().map(to_json).collect();
            println!("{:#}", json!({ "pass": failed == 0, "rows": rows }));
        } else if failed == 0 {
            println!("all {} measurements are within their limits", self.rows.len());
        } else {
            println!("{failed} of {} measurements are off their limits", self.rows.len());
        }
        failed == 0
    }
}

fn line(quantity: &str, setting: &str, limits: &str, measured: &str, unit: &str, verdict: &str) {
    println!("{quantity:<21} {setting:<17} {limits:>19} {measured:>10} {unit:<8} {verdict}");
}

fn to_json(row: &Row) -> serde_json::Value {
    json!({
        "quantity": row.quantity,
        "setting": row.setting,
        "unit": row.unit,
        "low": row.limits.start(),
        "high": row.limits.end(),
        "measured": row.measured,
        "pass": row.passes(),
    })
}
