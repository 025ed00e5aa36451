// SPDX-License-Identifier: GPL-2.0

//! How rdmsr(1) of msr-tools writes a value.

/// Digits of the largest number of so many bits, in decimal.
fn decimal_digits(bits: u32) -> usize {
    let largest = u64::MAX.checked_shr(64 - bits).unwrap_or(0);
    largest.to_string().len()
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Radix {
    #[default]
    Hex,
    CapitalHex,
    Octal,
    Signed,
    Unsigned,
    /// The bytes themselves, or with `c` the C initialiser of an array of them.
    Raw,
}

/// Bits `high` to `low` of a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    high: u32,
    low: u32,
}

impl Field {
    pub const ALL: Self = Field { high: 63, low: 0 };

    fn bits(self) -> u32 {
        self.high - self.low + 1
    }

    fn of(self, value: u64) -> u64 {
        value >> self.low & u64::MAX >> (64 - self.bits())
    }
}

impl std::str::FromStr for Field {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |text: &str| text.parse().ok().filter(|&bit: &u32| bit < 64);
        let field = text.split_once(':').and_then(|(high, low)| {
            let (high, low) = (number(high)?, number(low)?);
            (low <= high).then_some(Field { high, low })
        });
        field.ok_or_else(|| "write the highest and the lowest bit, such as 7:0".into())
    }
}

/// How values are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Format {
    pub radix: Radix,
    pub field: Field,
    /// As a constant of the C language.
    pub c: bool,
    /// With leading zeroes, as many as the field may need.
    pub fill: bool,
}

impl Format {
    /// What rdmsr writes to its standard output.
    pub fn bytes(self, value: u64) -> Vec<u8> {
        let value = self.field.of(value);
        match (self.radix, self.c) {
            (Radix::Raw, false) => value.to_le_bytes().into(),
            (Radix::Raw, true) => {
                let bytes = value.to_le_bytes().map(|byte| format!("{byte:#04x}"));
                format!("{{{}}}\n", bytes.join(",")).into()
            }
            _ => (self.number(value) + "\n").into(),
        }
    }

    fn number(self, value: u64) -> String {
        let bits = self.field.bits();
        let c = |prefix| if self.c { prefix } else { "" };
        let width = |digits| if self.fill { digits } else { 1 };
        let (hex, octal) = (width(bits.div_ceil(4) as usize), bits.div_ceil(3) as usize);
        match self.radix {
            Radix::Hex => format!("{}{value:0hex$x}", c("0x")),
            Radix::CapitalHex => format!("{}{value:0hex$X}", c("0x")),
            Radix::Octal => format!("{}{value:0width$o}", c("0"), width = width(octal)),
            // A constant is not filled: a leading zero would make it octal.
            Radix::Signed => {
                let width = if self.c {
                    1
                } else {
                    width(decimal_digits(bits - 1).max(1) + 1)
                };
                format!("{:0width$}", self.signed(value))
            }
            Radix::Unsigned if self.c => format!("{value}U"),
            _ => format!("{value:0width$}", width = width(decimal_digits(bits))),
        }
    }

    /// The highest bit of the field is its sign and the others are the magnitude. That is not what
    /// CPUs mean by a negative number, but it is what rdmsr prints.
    fn signed(self, value: u64) -> i64 {
        let sign = 1u64 << (self.field.bits() - 1);
        if value & sign == 0 {
            value as i64
        } else {
            (value & !sign).wrapping_neg() as i64
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(radix: Radix, field: &str, c: bool, fill: bool, value: u64) -> String {
        let field = field.parse().expect("a field");
        let format = Format {
            radix,
            field,
            c,
            fill,
        };
        String::from_utf8(format.bytes(value)).expect("text")
    }

    // What msr-tools 1.3 prints; selftests/tools compares many more with the program itself.
    #[test]
    fn as_rdmsr_does() {
        let value = 0xfedc_ba98_7654_3210;
        let plain = |radix, field| text(radix, field, false, false, value);
        assert_eq!(plain(Radix::Hex, "63:0"), "fedcba9876543210\n");
        assert_eq!(plain(Radix::CapitalHex, "63:32"), "FEDCBA98\n");
        assert_eq!(plain(Radix::Octal, "11:3"), "102\n");
        assert_eq!(plain(Radix::Unsigned, "63:60"), "15\n");
        assert_eq!(plain(Radix::Signed, "63:60"), "-7\n");
        let filled = |radix, field| text(radix, field, false, true, value);
        assert_eq!(filled(Radix::Hex, "8:0"), "010\n");
        assert_eq!(filled(Radix::Octal, "8:0"), "020\n");
        assert_eq!(filled(Radix::Unsigned, "8:0"), "016\n");
        assert_eq!(filled(Radix::Signed, "8:0"), "0016\n");
        assert_eq!(filled(Radix::Unsigned, "63:0"), "18364758544493064720\n");
        let constant = |radix, fill| text(radix, "11:0", true, fill, value);
        assert_eq!(constant(Radix::Hex, false), "0x210\n");
        assert_eq!(constant(Radix::CapitalHex, true), "0x210\n");
        assert_eq!(constant(Radix::Octal, false), "01020\n");
        assert_eq!(constant(Radix::Signed, true), "528\n");
        assert_eq!(constant(Radix::Unsigned, true), "528U\n");
        assert_eq!(
            constant(Radix::Raw, false),
            "{0x10,0x02,0x00,0x00,0x00,0x00,0x00,0x00}\n"
        );
    }

    #[test]
    fn raw_bytes() {
        let format = Format {
            radix: Radix::Raw,
            field: Field::ALL,
            c: false,
            fill: true,
        };
        assert_eq!(format.bytes(0x0102), [2, 1, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn fields() {
        for text in [
            "", "7", "7:", ":0", "0:7", "64:0", "7:0:1", "-1:0", "a:b", "0x7:0",
        ] {
            assert!(text.parse::<Field>().is_err(), "{text}");
        }
        assert_eq!("63:0".parse(), Ok(Field::ALL));
        assert_eq!(text(Radix::Hex, "0:0", false, false, 1), "1\n");
        assert_eq!(text(Radix::Signed, "0:0", false, true, 1), "00\n");
    }
}
