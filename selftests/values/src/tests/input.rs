// SPDX-License-Identifier: GPL-2.0

//! Odd ways to read, and what cannot be written.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::{FileExt, PermissionsExt};

use cpupeek_selftests::guest::{self, attribute};
use cpupeek_selftests::sys::{self, Errno};
use cpupeek_selftests::tests::Env;

use super::{tests, On};
use crate::files::{self, number, try_set};

tests! { "input";
    one_byte_at_a_time: On::Once, [],
    odd_offsets: On::Once, [],
    writes_are_refused: On::Once, [],
    silly_settings: On::Once, [],
    settings_are_for_root: On::Once, [],
}

/// A value that stays the same, as text.
fn text() -> (File, String) {
    let cpu = guest::online()[0];
    files::set("cache_ms", 60_000);
    number(cpu, "temp_input");
    let path = files::path(cpu, "temp_input");
    (
        File::open(&path).unwrap(),
        std::fs::read_to_string(path).unwrap(),
    )
}

fn one_byte_at_a_time(_: &Env) {
    let (mut file, text) = text();
    assert!(text.len() > 3, "{text}");
    let mut read = Vec::new();
    let mut byte = [0];
    while file.read(&mut byte).unwrap() == 1 {
        read.push(byte[0]);
    }
    assert_eq!(String::from_utf8(read).unwrap(), text);
    assert_eq!(file.read(&mut byte).unwrap(), 0, "the end stays the end");
    assert_eq!(file.read(&mut []).unwrap(), 0);
}

fn odd_offsets(_: &Env) {
    let (file, text) = text();
    for offset in (0..text.len()).rev() {
        let mut buffer = [0xa5; 16];
        let len = file.read_at(&mut buffer, offset as u64).unwrap();
        assert_eq!(&buffer[..len], &text.as_bytes()[offset..], "from {offset}");
        assert!(buffer[len..].iter().all(|&byte| byte == 0xa5));
        assert_eq!(file.read_at(&mut buffer[..1], offset as u64).unwrap(), 1);
    }
    for beyond in [text.len() as u64, 4095, 4096, 1 << 20, i64::MAX as u64 - 16] {
        let read = file.read_at(&mut [0; 16], beyond);
        assert!(
            matches!(read, Ok(0))
                || read
                    .as_ref()
                    .is_err_and(|e| e.raw_os_error() == Some(libc::EINVAL)),
            "at {beyond}: {read:?}"
        );
    }
    let mut large = vec![0; 1 << 20];
    assert_eq!(file.read_at(&mut large, 0).unwrap(), text.len());
}

fn writes_are_refused(_: &Env) {
    let cpu = guest::online()[0];
    let mut paths: Vec<_> = files::all_names(cpu)
        .iter()
        .map(|name| files::path(cpu, name))
        .collect();
    paths.extend(["refreshes", "windows", "calls"].map(guest::attribute_path));
    for path in paths {
        let open = || File::options().write(true).open(&path);
        let error = files::error(open().map(drop).expect_err("read-only, for root too"));
        assert_eq!(error, Errno(libc::EACCES), "{path}");
        // Not even a mode that allows it helps.
        let mode = std::fs::metadata(&path).unwrap().permissions();
        let writable = std::fs::Permissions::from_mode(mode.mode() | 0o200);
        std::fs::set_permissions(&path, writable).unwrap();
        let written = open().and_then(|file| file.write_at(b"1\n", 0));
        std::fs::set_permissions(&path, mode).unwrap();
        let error = files::error(written.map(drop).expect_err("nothing takes a value"));
        let refused = [libc::EACCES, libc::EIO, libc::EPERM];
        assert!(refused.contains(&error.0), "{path}: {error:?}");
        assert_eq!(
            sys::open(&path, libc::O_RDWR).map(drop),
            Err(Errno(libc::EACCES))
        );
        assert!(std::fs::remove_file(&path).is_err());
    }
}

fn silly_settings(_: &Env) {
    let silly = [
        "\n",
        " ",
        "x",
        "-1",
        "+-1",
        "1.5",
        "1e3",
        "100 200",
        "100\n200",
        "18446744073709551616",
        "99999999999999999999999999",
        "0x",
        "١٠٠",
        "1000\0",
    ];
    for (setting, out_of_range) in [
        (
            "cache_ms",
            &["0", "1", "99", "60001", "18446744073709551615"][..],
        ),
        ("energy_hold_s", &["604801", "18446744073709551615"]),
    ] {
        let before = attribute(setting);
        for text in silly.iter().chain(out_of_range) {
            let error = try_set(setting, text).expect_err(text);
            assert!(
                [libc::EINVAL, libc::ERANGE].contains(&error.0),
                "{setting} {text:?}: {error:?}"
            );
            assert_eq!(attribute(setting), before, "{setting} {text:?}");
        }
        let long = "1".repeat(5000);
        assert!(try_set(setting, &long).is_err());
        assert_eq!(attribute(setting), before);
    }
    for (setting, values) in [
        ("cache_ms", [100, 1000, 60_000]),
        ("energy_hold_s", [0, 3600, 604_800]),
    ] {
        for value in values {
            for text in [value.to_string(), format!("{value}\n")] {
                assert_eq!(try_set(setting, &text), Ok(()), "{setting} {text:?}");
                assert_eq!(attribute(setting), value);
            }
        }
    }
}

fn settings_are_for_root(_: &Env) {
    sys::fork(|| {
        sys::become_user(65534);
        for setting in ["cache_ms", "energy_hold_s"] {
            attribute(setting);
            assert_eq!(try_set(setting, "1000"), Err(Errno(libc::EACCES)));
        }
    })
    .expect_success();
}
