// SPDX-License-Identifier: GPL-2.0
//! The shape of a machine description.

use std::collections::BTreeMap;

use serde::de::{self, Deserializer, Visitor};
use serde::Deserialize;
use toml::Spanned;

/// The whole file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct File {
    /// For people.
    #[serde(default, rename = "description")]
    pub _description: String,
    /// How many CPUs.
    pub cpus: Spanned<u32>,
    /// In how many dies they are, as many in each.
    pub dies: Option<Spanned<u32>>,
    /// Counters read on one CPU within this many microseconds are read at the same instant.
    #[serde(default)]
    pub burst_us: u32,
    /// For the guest's kernel command line.
    #[serde(default)]
    pub append: String,
    /// Names for lists of CPUs.
    #[serde(default)]
    pub groups: BTreeMap<String, Spanned<String>>,
    /// What CPUID says of the processor.
    #[serde(default)]
    pub processor: Processor,
    /// CPUID leaves.
    #[serde(default)]
    pub cpuid: Vec<Spanned<Leaf>>,
    /// Registers.
    #[serde(default)]
    pub msr: Vec<Spanned<Msr>>,
}

/// The identity of the processor.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Processor {
    pub vendor: Option<Spanned<String>>,
    pub family: Option<Spanned<u32>>,
    #[serde(default)]
    pub model: u32,
    #[serde(default)]
    pub stepping: u32,
    pub brand: Option<Spanned<String>>,
}

/// Changes of one CPUID leaf.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Leaf {
    pub leaf: Number,
    pub subleaf: Option<Number>,
    pub cpus: Option<Spanned<String>>,
    pub eax: Option<Number>,
    pub ebx: Option<Number>,
    pub ecx: Option<Number>,
    pub edx: Option<Number>,
    pub eax_set: Option<Number>,
    pub ebx_set: Option<Number>,
    pub ecx_set: Option<Number>,
    pub edx_set: Option<Number>,
    pub eax_clear: Option<Number>,
    pub ebx_clear: Option<Number>,
    pub ecx_clear: Option<Number>,
    pub edx_clear: Option<Number>,
}

/// One register.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Msr {
    pub reg: Number,
    #[serde(default)]
    pub name: String,
    pub cpus: Option<Spanned<String>>,
    pub value: Option<Number>,
    pub values: Option<Vec<Number>>,
    pub counter: Option<Counter>,
    #[serde(default)]
    pub fault: bool,
    #[serde(default)]
    pub writable: bool,
    pub delay_us: Option<OneOrMany>,
}

/// A register that counts.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Counter {
    #[serde(default)]
    pub start: Number,
    /// Per second.
    pub rate: Option<Number>,
    /// Per read.
    pub step: Option<Number>,
    pub bits: Option<u32>,
}

/// One number, or a list.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub enum OneOrMany {
    One(u32),
    Many(Vec<u32>),
}

impl OneOrMany {
    pub fn as_slice(&self) -> &[u32] {
        match self {
            Self::One(one) => std::slice::from_ref(one),
            Self::Many(many) => many,
        }
    }
}

/// An unsigned number; beyond 63 bits TOML has no integers, so it may be a string such as "0xffff_ffff_ffff_ffff".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Number(pub u64);

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Expected;
        impl Visitor<'_> for Expected {
            type Value = Number;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a number of at most 64 bits, such as 0x1b1 or \"0xffffffffffffffff\"")
            }

            fn visit_i64<E: de::Error>(self, value: i64) -> Result<Number, E> {
                u64::try_from(value)
                    .map(Number)
                    .map_err(|_| E::invalid_value(de::Unexpected::Signed(value), &self))
            }

            fn visit_u64<E: de::Error>(self, value: u64) -> Result<Number, E> {
                Ok(Number(value))
            }

            fn visit_str<E: de::Error>(self, value: &str) -> Result<Number, E> {
                let digits = value.replace('_', "");
                let parsed = match digits.strip_prefix("0x") {
                    Some(hex) => u64::from_str_radix(hex, 16),
                    None => digits.parse(),
                };
                parsed
                    .map(Number)
                    .map_err(|_| E::invalid_value(de::Unexpected::Str(value), &self))
            }
        }
        deserializer.deserialize_any(Expected)
    }
}
