// SPDX-License-Identifier: GPL-2.0
//! build/guests/TIME-PID: what each run leaves behind.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::error::{Context, Result};

const KEPT: usize = 50;

/// Makes the directory of this run and removes those of long ago.
pub fn create(repo: &Path) -> Result<PathBuf> {
    let all = repo.join("build/guests");
    let name = format!("{}-{}", utc(SystemTime::now()), std::process::id());
    let path = all.join(name);
    fs::create_dir_all(&path).context(|| format!("make the directory '{}'", path.display()))?;
    prune(&all, KEPT);
    Ok(path)
}

/// Keeps the newest `kept`. What cannot be removed stays: another run may be removing it.
fn prune(all: &Path, kept: usize) {
    let Ok(entries) = fs::read_dir(all) else {
        return;
    };
    let mut runs: Vec<_> = entries
        .flatten()
        .map(|entry| entry.file_name())
        .filter(|name| {
            name.as_encoded_bytes()
                .first()
                .is_some_and(u8::is_ascii_digit)
        })
        .collect();
    runs.sort();
    let old = runs.len().saturating_sub(kept);
    for name in &runs[..old] {
        let _ = fs::remove_dir_all(all.join(name));
    }
}

/// `20260131T235959.123`, which sorts by time.
fn utc(time: SystemTime) -> String {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let seconds = since.as_secs() as libc::time_t;
    // SAFETY: a zeroed tm is valid, and gmtime_r() only writes to it.
    let tm = unsafe {
        let mut tm: libc::tm = std::mem::zeroed();
        libc::gmtime_r(&seconds, &mut tm);
        tm
    };
    format!(
        "{:04}{:02}{:02}T{:02}{:02}{:02}.{:03}",
        tm.tm_year + 1900,
        tm.tm_mon + 1,
        tm.tm_mday,
        tm.tm_hour,
        tm.tm_min,
        tm.tm_sec,
        since.subsec_millis()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn times_sort() {
        let time = UNIX_EPOCH + Duration::from_millis(1_000_000_000_007);
        assert_eq!(utc(time), "20010909T014640.007");
    }

    #[test]
    fn the_oldest_go() {
        let all = std::env::temp_dir().join(format!("cpupeek-rundir-{}", std::process::id()));
        for name in ["20200101T000000.000-1", "20200102T000000.000-1", "last"] {
            fs::create_dir_all(all.join(name)).unwrap();
        }
        prune(&all, 1);
        assert!(!all.join("20200101T000000.000-1").exists());
        assert!(all.join("20200102T000000.000-1").exists());
        assert!(all.join("last").exists());
        fs::remove_dir_all(&all).unwrap();
    }
}
