// SPDX-License-Identifier: GPL-2.0

//! What can go wrong, told apart by who refused.

use rustix::io::Errno;
use std::error;
use std::fmt;
use std::io;
use std::path::PathBuf;

/// Why one operation has no value. The others of its batch are not affected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OpError {
    /// The operation is malformed (EINVAL).
    Malformed,
    /// The policy refuses the register to this descriptor (EACCES).
    RegisterRefused,
    /// The policy refuses the CPU to this caller (EPERM).
    CpuRefused,
    /// There is no such CPU, or it is offline or went offline (ENXIO).
    Absent,
    /// The CPU refused the register with a general protection fault (EIO).
    Hardware,
    /// The CPU did not answer in time (ETIME).
    Timeout,
    /// There has been no sample yet (ENODATA).
    NoSample,
    /// The sampler was stopped (ECANCELED).
    Stopped,
    /// The operation was not performed.
    NotRead,
    /// An errno that this version of the library does not know.
    Other(i32),
}

impl OpError {
    /// The error for a positive errno.
    pub fn from_errno(errno: i32) -> Self {
        [
            OpError::Malformed,
            OpError::RegisterRefused,
            OpError::CpuRefused,
            OpError::Absent,
            OpError::Hardware,
            OpError::Timeout,
            OpError::NoSample,
            OpError::Stopped,
        ]
        .into_iter()
        .find(|known| known.errno() == errno)
        .unwrap_or(OpError::Other(errno))
    }

    /// The errno, positive; 0 for [`OpError::NotRead`].
    pub fn errno(self) -> i32 {
        let errno = match self {
            OpError::Malformed => Errno::INVAL,
            OpError::RegisterRefused => Errno::ACCESS,
            OpError::CpuRefused => Errno::PERM,
            OpError::Absent => Errno::NXIO,
            OpError::Hardware => Errno::IO,
            OpError::Timeout => Errno::TIME,
            OpError::NoSample => Errno::NODATA,
            OpError::Stopped => Errno::CANCELED,
            OpError::NotRead => return 0,
            OpError::Other(errno) => return errno,
        };
        errno.raw_os_error()
    }

    /// The errno's name where the ABI names it.
    pub fn errno_name(self) -> Option<&'static str> {
        match self {
            OpError::Malformed => Some("EINVAL"),
            OpError::RegisterRefused => Some("EACCES"),
            OpError::CpuRefused => Some("EPERM"),
            OpError::Absent => Some("ENXIO"),
            OpError::Hardware => Some("EIO"),
            OpError::Timeout => Some("ETIME"),
            OpError::NoSample => Some("ENODATA"),
            OpError::Stopped => Some("ECANCELED"),
            OpError::NotRead | OpError::Other(_) => None,
        }
    }

    /// Who or what refused, in one word that does not change between versions:
    /// `malformed`, `policy` (the register or the CPU), `absence`, `hardware`,
    /// `time`, or `unknown`.
    pub fn kind(self) -> &'static str {
        match self {
            OpError::Malformed => "malformed",
            OpError::RegisterRefused | OpError::CpuRefused => "policy",
            OpError::Absent | OpError::Stopped => "absence",
            OpError::Hardware => "hardware",
            OpError::Timeout | OpError::NoSample => "time",
            OpError::NotRead | OpError::Other(_) => "unknown",
        }
    }

    /// The same for people, without the errno's name.
    pub fn description(self) -> &'static str {
        match self {
            OpError::Malformed => "malformed operation",
            OpError::RegisterRefused => "policy: register not on the allowlist",
            OpError::CpuRefused => "policy: CPU not allowed to this caller",
            OpError::Absent => "CPU absent or offline",
            OpError::Hardware => "refused by the CPU",
            OpError::Timeout => "no answer in time",
            OpError::NoSample => "no sample yet",
            OpError::Stopped => "sampler stopped",
            OpError::NotRead => "not read",
            OpError::Other(_) => "unknown error",
        }
    }
}

impl fmt::Display for OpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.errno_name(), self.errno()) {
            (Some(name), _) => write!(f, "{} ({name})", self.description()),
            (None, 0) => f.write_str(self.description()),
            (None, errno) => write!(f, "{} {errno}", self.description()),
        }
    }
}

impl error::Error for OpError {}

/// Why the device cannot be used at all. Each message is one sentence and names
/// the remedy.
#[derive(Debug)]
#[non_exhaustive]
pub enum DeviceError {
    /// There is no device: the module is not loaded.
    NotLoaded {
        /// The device's path.
        path: PathBuf,
    },
    /// The caller may not open the device.
    Permission {
        /// The device's path.
        path: PathBuf,
    },
    /// The path leads to something that is not this device.
    NotCpupeek {
        /// The device's path.
        path: PathBuf,
    },
    /// The module speaks another version of the ABI than this library.
    UnknownAbi {
        /// The device's path.
        path: PathBuf,
    },
    /// The device could not be opened for another reason.
    Open {
        /// The device's path.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// A command as a whole failed; none of its operations has an answer.
    Command {
        /// The command's name.
        command: &'static str,
        /// The reason.
        source: io::Error,
    },
}

impl DeviceError {
    pub(crate) fn from_open(path: PathBuf, source: io::Error) -> Self {
        match Errno::from_io_error(&source) {
            Some(Errno::NOENT | Errno::NXIO | Errno::NODEV) => DeviceError::NotLoaded { path },
            Some(Errno::ACCESS | Errno::PERM) => DeviceError::Permission { path },
            _ => DeviceError::Open { path, source },
        }
    }

    /// The error of the first command, which is where another driver and
    /// another ABI show.
    pub(crate) fn from_info(path: PathBuf, errno: Errno) -> Self {
        match errno {
            Errno::NOTTY | Errno::OPNOTSUPP => DeviceError::NotCpupeek { path },
            Errno::INVAL | Errno::TOOBIG => DeviceError::UnknownAbi { path },
            errno => DeviceError::from_command("INFO", errno),
        }
    }

    pub(crate) fn from_command(command: &'static str, errno: Errno) -> Self {
        DeviceError::Command {
            command,
            source: errno.into(),
        }
    }
}

impl fmt::Display for DeviceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DeviceError::NotLoaded { path } => write!(
                f,
                "there is no {}: load the module as root with 'modprobe cpupeek' or 'insmod cpupeek.ko'",
                path.display()
            ),
            DeviceError::Permission { path } => write!(
                f,
                "permission to open {} is denied: run this as root, or let a udev rule give your group access to it",
                path.display()
            ),
            DeviceError::NotCpupeek { path } => write!(
                f,
                "{} is not a cpupeek device: name the right one, usually {}",
                path.display(),
                crate::DEFAULT_PATH
            ),
            DeviceError::UnknownAbi { path } => write!(
                f,
                "the module behind {} speaks another ABI than this program: install both from the same version",
                path.display()
            ),
            DeviceError::Open { path, source } => {
                let remedy = match Errno::from_io_error(source) {
                    Some(Errno::MFILE | Errno::NFILE) => "close other files, or allow more of them (ulimit -n)",
                    Some(Errno::BUSY | Errno::AGAIN | Errno::INTR) => "try again",
                    Some(Errno::NOMEM) => "free some memory",
                    _ => "see whether the path is right, usually /dev/cpupeek",
                };
                write!(f, "cannot open {}: {source}: {remedy}", path.display())
            }
            DeviceError::Command { command, source } => {
                let remedy = match Errno::from_io_error(source) {
                    Some(Errno::NOMEM) => "free some memory, or read less at a time",
                    Some(Errno::PERM | Errno::ACCESS) => {
                        "run this as root, with a descriptor that was not narrowed"
                    }
                    Some(Errno::TOOBIG) => "read less at a time",
                    Some(Errno::INTR) => "run it again, and let it end",
                    Some(Errno::MFILE | Errno::NFILE) => {
                        "close other files, or allow more of them (ulimit -n)"
                    }
                    Some(Errno::NOTTY | Errno::INVAL | Errno::FAULT) => {
                        "install the module and this program from the same version"
                    }
                    _ => "see what dmesg says",
                };
                write!(
                    f,
                    "the module refused the command {command}: {source}: {remedy}"
                )
            }
        }
    }
}

impl error::Error for DeviceError {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        match self {
            DeviceError::Open { source, .. } | DeviceError::Command { source, .. } => Some(source),
            _ => None,
        }
    }
}

/// Why a single read has no value.
#[derive(Debug)]
pub enum Error {
    /// The device cannot be used.
    Device(DeviceError),
    /// The operation was refused.
    Op(OpError),
}

impl From<DeviceError> for Error {
    fn from(error: DeviceError) -> Self {
        Error::Device(error)
    }
}

impl From<OpError> for Error {
    fn from(error: OpError) -> Self {
        Error::Op(error)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Device(error) => error.fmt(f),
            Error::Op(error) => error.fmt(f),
        }
    }
}

impl error::Error for Error {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        match self {
            Error::Device(error) => error.source(),
            Error::Op(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: [(i32, &str, &str, OpError); 8] = [
        (22, "EINVAL", "malformed", OpError::Malformed),
        (13, "EACCES", "policy", OpError::RegisterRefused),
        (1, "EPERM", "policy", OpError::CpuRefused),
        (6, "ENXIO", "absence", OpError::Absent),
        (5, "EIO", "hardware", OpError::Hardware),
        (62, "ETIME", "time", OpError::Timeout),
        (61, "ENODATA", "time", OpError::NoSample),
        (125, "ECANCELED", "absence", OpError::Stopped),
    ];

    #[test]
    fn errnos_go_both_ways() {
        for (errno, name, kind, error) in KNOWN {
            assert_eq!(OpError::from_errno(errno), error);
            assert_eq!(error.errno(), errno);
            assert_eq!(error.errno_name(), Some(name));
            assert_eq!(error.kind(), kind);
            assert!(error.to_string().ends_with(&format!(" ({name})")));
        }
    }

    #[test]
    fn unknown_errnos_stay_what_they_are() {
        for errno in [2, 110, 4095, 4096, 0, -1, i32::MIN, i32::MAX] {
            let error = OpError::from_errno(errno);
            assert_eq!(error, OpError::Other(errno));
            assert_eq!(error.errno(), errno);
            assert_eq!(error.errno_name(), None);
        }
        assert_eq!(OpError::Other(110).to_string(), "unknown error 110");
        assert_eq!(OpError::NotRead.to_string(), "not read");
    }

    #[test]
    fn open_errors_are_told_apart() {
        let open = |errno| DeviceError::from_open("/dev/x".into(), Errno::into(errno)).to_string();
        assert!(open(Errno::NOENT).contains("modprobe cpupeek"));
        assert!(open(Errno::NODEV).contains("modprobe cpupeek"));
        assert!(open(Errno::ACCESS).contains("udev rule"));
        assert!(open(Errno::PERM).contains("udev rule"));
        assert!(open(Errno::MFILE).starts_with("cannot open /dev/x: Too many open files"));
        assert!(open(Errno::MFILE).ends_with("(ulimit -n)"));
        assert!(open(Errno::LOOP).contains("usually /dev/cpupeek"));
    }

    #[test]
    fn every_message_has_a_remedy() {
        for errno in 1..=133 {
            let errno = Errno::from_raw_os_error(errno);
            let path = "/dev/x".into();
            for message in [
                DeviceError::from_open("/dev/x".into(), errno.into()).to_string(),
                DeviceError::from_info(path, errno).to_string(),
                DeviceError::from_command("READ", errno).to_string(),
            ] {
                let remedy = message.rsplit(": ").next().unwrap_or_default();
                let verbs = [
                    "load ", "run ", "name ", "install ", "close ", "try ", "free ", "see ",
                    "read ",
                ];
                assert!(
                    verbs.iter().any(|verb| remedy.starts_with(verb)),
                    "{message}"
                );
                assert!(!message.contains('\n'), "{message}");
            }
        }
    }

    #[test]
    fn info_errors_are_told_apart() {
        let info = |errno| DeviceError::from_info("/dev/x".into(), errno).to_string();
        assert!(info(Errno::NOTTY).contains("is not a cpupeek device"));
        assert!(info(Errno::INVAL).contains("another ABI"));
        assert!(info(Errno::NOMEM).contains("refused the command INFO: "));
    }
}
