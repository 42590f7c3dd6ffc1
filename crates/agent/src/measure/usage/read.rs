//! Reads small files of the kernel again and again, and turns counters into rates.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Instant;

/// Largest file that is read. `/proc/stat` of a machine with a thousand CPUs is shorter.
const MAX_BYTES: usize = 256 << 10;

/// First size of a buffer.
const FIRST_BYTES: usize = 4 << 10;

/// A file of the kernel that stays open, because opening costs more than reading.
#[derive(Debug)]
pub(super) struct KernelFile(File);

/// A buffer that all files share.
#[derive(Debug, Default)]
pub(super) struct Buffer(Vec<u8>);

impl KernelFile {
    /// Opens a file; `None` if it does not exist or may not be read.
    pub(super) fn open(path: impl AsRef<Path>) -> Option<Self> {
        File::open(path).ok().map(Self)
    }

    /// The current content; `None` if reading fails.
    pub(super) fn read<'a>(&self, buffer: &'a mut Buffer) -> Option<&'a str> {
        let bytes = &mut buffer.0;
        if bytes.is_empty() {
            bytes.resize(FIRST_BYTES, 0);
        }
        let mut length = 0;
        loop {
            match self.0.read_at(&mut bytes[length..], length as u64) {
                Ok(0) => break,
                Ok(more) => length += more,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(_) => return None,
            }
            if length == bytes.len() {
                if length >= MAX_BYTES {
                    return None;
                }
                bytes.resize(2 * length, 0);
            }
        }
        str::from_utf8(&bytes[..length]).ok()
    }

    /// The number that is the whole content.
    pub(super) fn number(&self, buffer: &mut Buffer) -> Option<u64> {
        self.read(buffer)?.trim().parse().ok()
    }
}

/// Value of `key` in lines of a key and a number.
pub(crate) fn value_of(text: &str, key: &str) -> Option<u64> {
    let line =
        text.lines().find_map(|line| line.strip_prefix(key).filter(|rest| rest.starts_with([' ', ':', '\t'])))?;
    line.trim_start_matches([' ', ':', '\t']).split_ascii_whitespace().next()?.parse().ok()
}

/// A counter that is read regularly.
#[derive(Debug, Default)]
pub(super) struct Counter {
    last: Option<(u64, Instant)>,
}

impl Counter {
    /// Increase per second since the last reading; `None` without an earlier reading, or if a reading failed or the
    /// counter went back.
    pub(super) fn rate(&mut self, value: Option<u64>, now: Instant) -> Option<f32> {
        let last = std::mem::replace(&mut self.last, value.map(|value| (value, now)));
        let ((before, then), value) = last.zip(value)?;
        let elapsed = now.checked_duration_since(then)?.as_secs_f64();
        let increase = value.checked_sub(before)?;
        (elapsed > 0.0).then(|| (increase as f64 / elapsed) as f32)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::Duration;

    use super::*;

    #[test]
    fn failed_readings_give_gaps_and_never_zero() {
        let (mut counter, start) = (Counter::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(counter.rate(Some(100), at(0)), None);
        assert_eq!(counter.rate(Some(300), at(10)), Some(20.0));
        assert_eq!(counter.rate(None, at(20)), None);
        assert_eq!(counter.rate(Some(500), at(30)), None, "the span with the failed reading is unknown");
        assert_eq!(counter.rate(Some(400), at(40)), None, "the counter went back");
        assert_eq!(counter.rate(Some(400), at(50)), Some(0.0));
        assert_eq!(counter.rate(Some(900), at(50)), None, "no time has passed");
    }

    #[test]
    fn files_of_any_size_are_read_whole_and_again() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("file");
        let mut buffer = Buffer::default();
        assert!(KernelFile::open(&path).is_none());
        fs::write(&path, "1").expect("the test owns the path");
        let file = KernelFile::open(&path).expect("the file exists");
        for length in [1, FIRST_BYTES, 3 * FIRST_BYTES + 1, 7] {
            fs::write(&path, "7".repeat(length)).expect("the test owns the path");
            assert_eq!(file.read(&mut buffer).map(str::len), Some(length));
        }
        assert_eq!(file.number(&mut buffer), Some(7_777_777));
        fs::write(&path, vec![b'7'; MAX_BYTES]).expect("the test owns the path");
        assert_eq!(file.read(&mut buffer), None);
    }

    #[test]
    fn values_are_found_by_complete_key() {
        let text = "usage_usec 12\nusage 7\nMemTotal:   99 kB\n";
        assert_eq!(value_of(text, "usage"), Some(7));
        assert_eq!(value_of(text, "MemTotal"), Some(99));
        assert_eq!(value_of(text, "Mem"), None);
    }
}
