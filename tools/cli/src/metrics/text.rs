// SPDX-License-Identifier: GPL-2.0

//! The two text formats: Prometheus's, version 0.0.4, and OpenMetrics, version 1.0.0.

use std::fmt::Write;

/// The samples of one name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Family {
    /// Without the `_total` of a counter's samples.
    pub name: String,
    pub help: String,
    /// At the end of the name, or empty.
    pub unit: &'static str,
    pub is_counter: bool,
    pub samples: Vec<Sample>,
}

/// A number, as text, and what it is of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    pub labels: Vec<(&'static str, u32)>,
    pub value: String,
}

impl Family {
    /// That this command was here.
    pub fn about_us() -> Self {
        Family {
            name: "cpupeek_exported".into(),
            help: concat!(
                "1 where cpupeek ",
                env!("CARGO_PKG_VERSION"),
                " has written this"
            )
            .into(),
            unit: "",
            is_counter: false,
            samples: vec![Sample {
                labels: Vec::new(),
                value: "1".into(),
            }],
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exposition {
    Prometheus,
    OpenMetrics,
}

impl Exposition {
    pub fn text(self, families: &[Family]) -> String {
        let mut text = String::new();
        for family in families {
            self.family(&mut text, family);
        }
        if self == Exposition::OpenMetrics {
            text.push_str("# EOF\n");
        }
        text
    }

    fn family(self, text: &mut String, family: &Family) {
        let kind = if family.is_counter {
            "counter"
        } else {
            "gauge"
        };
        let samples = match family.is_counter {
            true => format!("{}_total", family.name),
            false => family.name.clone(),
        };
        // OpenMetrics names the family, Prometheus what its samples are called.
        let name = match self {
            Exposition::OpenMetrics => &family.name,
            Exposition::Prometheus => &samples,
        };
        let help = family.help.replace('\\', "\\\\").replace('\n', "\\n");
        let help = match self {
            Exposition::OpenMetrics => help.replace('"', "\\\""),
            Exposition::Prometheus => help,
        };
        let mut line = |args: std::fmt::Arguments<'_>| {
            // A String takes everything.
            let _ = text.write_fmt(args);
            text.push('\n');
        };
        line(format_args!("# HELP {name} {help}"));
        line(format_args!("# TYPE {name} {kind}"));
        if self == Exposition::OpenMetrics && !family.unit.is_empty() {
            line(format_args!("# UNIT {name} {}", family.unit));
        }
        for sample in &family.samples {
            let labels: Vec<_> = sample
                .labels
                .iter()
                .map(|(label, number)| format!("{label}=\"{number}\""))
                .collect();
            match labels.is_empty() {
                true => line(format_args!("{samples} {}", sample.value)),
                false => line(format_args!(
                    "{samples}{{{}}} {}",
                    labels.join(","),
                    sample.value
                )),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn families() -> [Family; 2] {
        let sample = |cpu, value: &str| Sample {
            labels: vec![("cpu", cpu)],
            value: value.into(),
        };
        [
            Family {
                name: "x_joules".into(),
                help: "a \"b\" \\ c\nd".into(),
                unit: "joules",
                is_counter: true,
                samples: vec![sample(0, "1.5"), sample(1, "2")],
            },
            Family {
                name: "y".into(),
                help: "z".into(),
                unit: "",
                is_counter: false,
                samples: vec![sample(3, "0")],
            },
        ]
    }

    #[test]
    fn prometheus() {
        assert_eq!(
            Exposition::Prometheus.text(&families()),
            "# HELP x_joules_total a \"b\" \\\\ c\\nd\n\
             # TYPE x_joules_total counter\n\
             x_joules_total{cpu=\"0\"} 1.5\n\
             x_joules_total{cpu=\"1\"} 2\n\
             # HELP y z\n# TYPE y gauge\ny{cpu=\"3\"} 0\n"
        );
    }

    #[test]
    fn openmetrics() {
        assert_eq!(
            Exposition::OpenMetrics.text(&families()),
            "# HELP x_joules a \\\"b\\\" \\\\ c\\nd\n\
             # TYPE x_joules counter\n# UNIT x_joules joules\n\
             x_joules_total{cpu=\"0\"} 1.5\n\
             x_joules_total{cpu=\"1\"} 2\n\
             # HELP y z\n# TYPE y gauge\ny{cpu=\"3\"} 0\n# EOF\n"
        );
        assert_eq!(Exposition::OpenMetrics.text(&[]), "# EOF\n");
    }
}
