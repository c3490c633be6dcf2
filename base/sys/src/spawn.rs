//! Programs that are started again and again: posix_spawn(3), and what a child
//! cost when it has ended.
//!
//! Everything that does not change from call to call is prepared once, so that
//! a call is the spawn itself. glibc's posix_spawn shares the parent's memory
//! with the child until it executes the program (CLONE_VM and CLONE_VFORK): a
//! call costs the same from a parent of any size, which fork(2) does not.
//!
//! Not for workers, which run code of this program: see [`crate::process`].

use crate::errno::check;
use crate::process::{self, Ended};
use rustix::io::Errno;
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
use std::convert::Infallible;
use std::ffi::CString;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A program with its arguments, ready to be started many times.
///
/// Each argument may hold the places `{n}` and `{worker}`, which every start
/// fills in.
#[derive(Debug)]
pub struct Program {
    path: CString,
    words: Vec<Word>,
    /// The arguments of the latest start, each ended by a zero byte.
    text: Vec<u8>,
    /// Where each begins in `text`.
    starts: Vec<usize>,
    pointers: Pointers,
    setting: Setting,
}

/// A text with places to fill in: `{n}` and `{worker}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Word(Vec<Piece>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Text(Vec<u8>),
    Nth,
    Worker,
}

impl Word {
    /// Reads it.
    pub fn from_text(text: &str) -> Word {
        let Ok(word) = Word::parse::<Infallible>(text, |piece| Ok(piece.into()));
        word
    }

    /// Reads text whose pieces between the places `decode` turns into bytes.
    ///
    /// # Errors
    /// Those of `decode`.
    pub fn parse<E>(text: &str, decode: impl Fn(&str) -> Result<Vec<u8>, E>) -> Result<Word, E> {
        let mut pieces = Vec::new();
        let mut rest = text;
        while !rest.is_empty() {
            let places = [("{n}", Piece::Nth), ("{worker}", Piece::Worker)];
            let found = places
                .into_iter()
                .filter_map(|(place, piece)| Some((rest.find(place)?, place, piece)))
                .min_by_key(|(at, ..)| *at);
            let Some((at, place, piece)) = found else {
                pieces.push(Piece::Text(decode(rest)?));
                break;
            };
            if at > 0 {
                pieces.push(Piece::Text(decode(&rest[..at])?));
            }
            pieces.push(piece);
            rest = &rest[at + place.len()..];
        }
        Ok(Word(pieces))
    }

    /// Appends it, filled in.
    pub fn write(&self, into: &mut Vec<u8>, nth: u64, worker: u64) {
        for piece in &self.0 {
            match piece {
                Piece::Text(text) => into.extend_from_slice(text),
                Piece::Nth => write_number(into, nth),
                Piece::Worker => write_number(into, worker),
            }
        }
    }

    fn is_fixed(&self) -> bool {
        self.0.iter().all(|piece| matches!(piece, Piece::Text(_)))
    }
}

fn write_number(into: &mut Vec<u8>, number: u64) {
    use std::io::Write as _;
    // Writing to a Vec cannot fail.
    let _ = write!(into, "{number}");
}

/// The array that execve(2) wants: it points into the `text` beside it.
#[derive(Debug)]
struct Pointers(Vec<*mut libc::c_char>);

// SAFETY: the pointers are written anew from `Program::text` before each use,
// and only ever read through a `&mut Program`.
unsafe impl Send for Pointers {}

/// The attributes common to every start, as posix_spawn wants them.
struct Setting {
    actions: libc::posix_spawn_file_actions_t,
    attributes: libc::posix_spawnattr_t,
}

// SAFETY: glibc's objects hold plain data and memory of the allocator, no
// thread's own state.
unsafe impl Send for Setting {}

impl std::fmt::Debug for Setting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Setting")
    }
}

impl Drop for Setting {
    fn drop(&mut self) {
        // SAFETY: both were initialised in `Setting::new` and are used no more.
        unsafe {
            libc::posix_spawn_file_actions_destroy(&mut self.actions);
            libc::posix_spawnattr_destroy(&mut self.attributes);
        }
    }
}

impl Setting {
    /// With these standard streams; a process group of its own; no signal blocked,
    /// none ignored.
    fn new(streams: &Streams<'_>) -> io::Result<Setting> {
        let mut actions = MaybeUninit::uninit();
        let mut attributes = MaybeUninit::uninit();
        // SAFETY: each object is initialised before it is used, and the memory
        // is that of live locals.
        unsafe {
            check(libc::posix_spawn_file_actions_init(actions.as_mut_ptr()))?;
            check(libc::posix_spawnattr_init(attributes.as_mut_ptr()))?;
        }
        // SAFETY: both calls have succeeded.
        let mut setting = unsafe {
            Setting {
                actions: actions.assume_init(),
                attributes: attributes.assume_init(),
            }
        };
        let targets = [(streams.input, 0), (streams.output, 1), (streams.errors, 2)];
        // SAFETY: `setting` is initialised, the sets are live locals that
        // sigemptyset and sigfillset initialise.
        unsafe {
            for (from, to) in targets {
                check(libc::posix_spawn_file_actions_adddup2(
                    &mut setting.actions,
                    from.as_raw_fd(),
                    to,
                ))?;
            }
            let mut none = MaybeUninit::uninit();
            let mut all = MaybeUninit::uninit();
            libc::sigemptyset(none.as_mut_ptr());
            libc::sigfillset(all.as_mut_ptr());
            let attributes = &mut setting.attributes;
            check(libc::posix_spawnattr_setsigmask(attributes, none.as_ptr()))?;
            check(libc::posix_spawnattr_setsigdefault(
                attributes,
                all.as_ptr(),
            ))?;
            check(libc::posix_spawnattr_setpgroup(attributes, 0))?;
            let flags = libc::POSIX_SPAWN_SETSIGMASK
                | libc::POSIX_SPAWN_SETSIGDEF
                | libc::POSIX_SPAWN_SETPGROUP;
            check(libc::posix_spawnattr_setflags(attributes, flags as _))?;
        }
        Ok(setting)
    }
}

/// The standard streams of a program. They must stay open for as long as it is
/// started, and be closed on execution (O_CLOEXEC).
#[derive(Clone, Copy, Debug)]
pub struct Streams<'a> {
    /// Standard input.
    pub input: BorrowedFd<'a>,
    /// Standard output.
    pub output: BorrowedFd<'a>,
    /// Standard error.
    pub errors: BorrowedFd<'a>,
}

impl Program {
    /// As [`Program::with_streams`], with errors in `output` as well.
    ///
    /// # Errors
    /// As there.
    pub fn new(
        words: &[String],
        input: BorrowedFd<'_>,
        output: BorrowedFd<'_>,
    ) -> io::Result<Program> {
        let streams = Streams {
            input,
            output,
            errors: output,
        };
        Program::with_streams(words, &streams)
    }

    /// Finds the program that `words` begins with, as a shell would, and
    /// prepares its start.
    ///
    /// # Errors
    /// ENOENT if it is not to be found, EACCES if it cannot be executed, EINVAL
    /// for no words or a zero byte in one.
    pub fn with_streams(words: &[String], streams: &Streams<'_>) -> io::Result<Program> {
        let name = words
            .first()
            .ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
        if words.iter().any(|word| word.contains('\0')) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let path = find(name)?;
        Ok(Program {
            path: CString::new(path.as_os_str().as_bytes())?,
            words: words.iter().map(|word| Word::from_text(word)).collect(),
            text: Vec::new(),
            starts: Vec::new(),
            pointers: Pointers(Vec::new()),
            setting: Setting::new(streams)?,
        })
    }

    /// Starts it; `nth` and `worker` stand where `{n}` and `{worker}` do.
    ///
    /// # Errors
    /// EAGAIN where a limit on processes is reached, ENOMEM, and those of
    /// execve(2).
    pub fn start(&mut self, nth: u64, worker: u64) -> io::Result<Child> {
        self.fill_in(nth, worker);
        let mut pid = 0;
        // SAFETY: `path` and every argument end with a zero byte, the array
        // with a null pointer, and all outlive the call; `environ` is this
        // process's own, which nobody changes while children are started.
        check(unsafe {
            libc::posix_spawn(
                &mut pid,
                self.path.as_ptr(),
                &self.setting.actions,
                &self.setting.attributes,
                self.pointers.0.as_ptr(),
                environ.cast_const(),
            )
        })?;
        Ok(Child {
            pid: Pid::from_raw(pid).ok_or(io::ErrorKind::Other)?,
        })
    }

    fn fill_in(&mut self, nth: u64, worker: u64) {
        let filled = !self.starts.is_empty();
        if filled && self.words.iter().all(Word::is_fixed) {
            return;
        }
        self.text.clear();
        self.starts.clear();
        for word in &self.words {
            self.starts.push(self.text.len());
            word.write(&mut self.text, nth, worker);
            self.text.push(0);
        }
        let text = self.text.as_mut_ptr();
        let pointers = &mut self.pointers.0;
        pointers.clear();
        // In bounds: each start lies within `text`.
        pointers.extend(
            self.starts
                .iter()
                .map(|&at| text.wrapping_add(at).cast::<libc::c_char>()),
        );
        pointers.push(std::ptr::null_mut());
    }
}

unsafe extern "C" {
    /// environ(7).
    static environ: *mut *mut libc::c_char;
}

/// The path of a program that is named as on a command line: the name itself if
/// it holds a slash, otherwise the first match in $PATH.
///
/// # Errors
/// ENOENT, or EACCES if what was found cannot be executed.
pub fn find(name: &str) -> io::Result<PathBuf> {
    if name.contains('/') {
        return executable(Path::new(name)).map(|()| name.into());
    }
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into());
    let mut refused = None;
    for folder in std::env::split_paths(&path) {
        let candidate = folder.join(name);
        match executable(&candidate) {
            Ok(()) => return Ok(candidate),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                refused.get_or_insert(error);
            }
            Err(_) => {}
        }
    }
    Err(refused.unwrap_or_else(|| io::Error::from_raw_os_error(libc::ENOENT)))
}

/// The path of a program that is installed with this one: beside it, or else the first
/// match in $PATH.
///
/// # Errors
/// As of [`find`].
pub fn beside_or_in_path(name: &str) -> io::Result<PathBuf> {
    let here = std::env::current_exe().ok();
    let beside = here.and_then(|program| Some(program.parent()?.join(name)));
    match beside.filter(|path| path.is_file()) {
        Some(beside) => Ok(beside),
        None => find(name),
    }
}

fn executable(path: &Path) -> io::Result<()> {
    let facts = std::fs::metadata(path)?;
    if !facts.is_file() || facts.permissions().mode() & 0o111 == 0 {
        return Err(io::Error::from_raw_os_error(libc::EACCES));
    }
    Ok(())
}

/// A started program. Dropping it without waiting leaves a zombie.
#[derive(Debug)]
#[must_use]
pub struct Child {
    pid: Pid,
}

impl Child {
    /// Its process.
    pub fn pid(&self) -> u32 {
        self.pid.as_raw_nonzero().get() as u32
    }

    /// Waits for its end without taking it: it stays a zombie until
    /// [`Child::reap`]. False if it was not over in time, or a signal came.
    ///
    /// # Errors
    /// EMFILE where a limit on descriptors is reached.
    pub fn await_end(&self, timeout: Option<Duration>) -> io::Result<bool> {
        match timeout {
            None => match waitid(
                WaitId::Pid(self.pid),
                WaitIdOptions::EXITED | WaitIdOptions::NOWAIT,
            ) {
                Ok(_) => Ok(true),
                Err(Errno::INTR) => Ok(false),
                Err(errno) => Err(errno.into()),
            },
            Some(timeout) => process::ends_within(self.pid, timeout),
        }
    }

    /// Waits until it has ended, and reaps it. Returns how it ended and what it
    /// used, including those of its own children that it waited for.
    ///
    /// # Errors
    /// ECHILD if somebody else has taken it.
    pub fn reap(self) -> io::Result<Ended> {
        let pid = self.pid.as_raw_nonzero().get();
        loop {
            match process::wait_for(pid, 0) {
                Ok(Some(ended)) => return Ok(ended),
                Ok(None) | Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    /// Kills it with all of its process group, and takes it. One that had ended
    /// before keeps its exit code.
    ///
    /// # Errors
    /// As [`Child::reap`].
    pub fn kill(self) -> io::Result<Ended> {
        // Not yet taken, it keeps its number: nobody else's group can have it.
        process::kill_group(self.pid());
        self.reap()
    }
}

#[cfg(test)]
mod live_tests {
    use super::*;
    use std::fs::File;
    use std::io::{Read, Seek};
    use std::os::fd::AsFd;
    use std::time::Instant;

    fn null() -> File {
        File::open("/dev/null").unwrap()
    }

    fn words(command: &[&str]) -> Vec<String> {
        command.iter().map(|word| (*word).to_owned()).collect()
    }

    fn program(command: &[&str], output: &File) -> io::Result<Program> {
        Program::new(&words(command), null().as_fd(), output.as_fd())
    }

    #[test]
    fn a_program_ends_with_its_code_or_its_signal() {
        let cases: [(&[&str], Option<i32>, Option<i32>); 4] = [
            (&["true"], Some(0), None),
            (&["false"], Some(1), None),
            (&["sh", "-c", "exit 42"], Some(42), None),
            (&["sh", "-c", "kill -9 $$"], None, Some(9)),
        ];
        for (command, code, signal) in cases {
            let input = null();
            let output = File::options().write(true).open("/dev/null").unwrap();
            let mut program = Program::new(&words(command), input.as_fd(), output.as_fd()).unwrap();
            let ended = program.start(0, 0).unwrap().reap().unwrap();
            assert_eq!((ended.code, ended.signal), (code, signal), "{command:?}");
        }
    }

    #[test]
    fn places_are_filled_in_anew_for_each_start() {
        let mut output = tempfile::tempfile().unwrap();
        let input = null();
        let command = words(&["printf", "%s ", "call-{n}", "{worker}/{n}", "{other}", ""]);
        let mut program = Program::new(&command, input.as_fd(), output.as_fd()).unwrap();
        for nth in [9, 10] {
            let ended = program.start(nth, 3).unwrap().reap().unwrap();
            assert_eq!(ended.code, Some(0));
        }
        let mut text = String::new();
        output.rewind().unwrap();
        output.read_to_string(&mut text).unwrap();
        assert_eq!(text, "call-9 3/9 {other}  call-10 3/10 {other}  ");
    }

    #[test]
    fn what_cannot_be_started_is_told_before_it_is() {
        let output = null();
        let folder = tempfile::tempdir().unwrap();
        let plain = folder.path().join("plain");
        std::fs::write(&plain, "no program").unwrap();
        let cases = [
            ("no-such-program-anywhere", libc::ENOENT),
            ("/no/such/program", libc::ENOENT),
            (plain.to_str().unwrap(), libc::EACCES),
            (folder.path().to_str().unwrap(), libc::EACCES),
        ];
        for (name, errno) in cases {
            let error = program(&[name], &output).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(errno), "{name}: {error}");
        }
        assert!(program(&[], &output).is_err());
        assert!(program(&["true", "a\0b"], &output).is_err());
    }

    #[test]
    fn a_child_that_hangs_is_given_up_and_killed() {
        let input = null();
        let output = File::options().write(true).open("/dev/null").unwrap();
        let command = words(&["sleep", "1000"]);
        let mut program = Program::new(&command, input.as_fd(), output.as_fd()).unwrap();
        let child = program.start(0, 0).unwrap();
        assert!(!child.await_end(Some(Duration::from_millis(20))).unwrap());
        process::until_over(child.pid(), Duration::from_millis(20));
        assert!(!process::is_over(child.pid()));
        assert_eq!(child.kill().unwrap().signal, Some(libc::SIGKILL));
    }

    #[test]
    fn what_a_child_has_started_is_killed_with_it() {
        let mut output = tempfile::tempfile().unwrap();
        let command = words(&["sh", "-c", "sleep 60 & echo $!; wait"]);
        let input = null();
        let mut program = Program::new(&command, input.as_fd(), output.as_fd()).unwrap();
        let child = program.start(0, 0).unwrap();
        let mut told = String::new();
        while !told.ends_with('\n') {
            output.rewind().unwrap();
            told.clear();
            output.read_to_string(&mut told).unwrap();
            std::thread::sleep(Duration::from_millis(1));
        }
        child.kill().unwrap();
        let stat = format!("/proc/{}/stat", told.trim());
        // Gone, or a zombie until its new parent looks.
        let lives = || std::fs::read_to_string(&stat).is_ok_and(|text| !text.contains(") Z "));
        for _ in 0..60_000 {
            if !lives() {
                return;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        panic!("it lives");
    }

    #[test]
    fn a_childs_end_is_awaited_before_it_is_taken() {
        let input = null();
        let output = File::options().write(true).open("/dev/null").unwrap();
        let command = words(&["true"]);
        let mut program = Program::new(&command, input.as_fd(), output.as_fd()).unwrap();
        for timeout in [None, Some(Duration::from_secs(60))] {
            let child = program.start(0, 0).unwrap();
            assert!(child.await_end(timeout).unwrap());
            assert_eq!(child.reap().unwrap().code, Some(0));
        }
        let (began, long) = (Instant::now(), Duration::from_secs(600));
        let child = program.start(0, 0).unwrap();
        process::until_over(child.pid(), long);
        assert!(began.elapsed() < long);
        assert!(process::is_over(child.pid()));
        assert_eq!(child.reap().unwrap().code, Some(0));
    }

    #[test]
    fn a_childs_cpu_time_is_its_own() {
        let input = null();
        let output = File::options().write(true).open("/dev/null").unwrap();
        let spin = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done";
        let command = words(&["sh", "-c", spin]);
        let mut program = Program::new(&command, input.as_fd(), output.as_fd()).unwrap();
        let used = program.start(0, 0).unwrap().reap().unwrap().usage;
        assert!(used.user_ns + used.system_ns > 5_000_000, "{used:?}");
    }

    #[test]
    fn signals_that_are_ignored_here_are_not_ignored_there() {
        // The Rust runtime ignores SIGPIPE; a shell tool would loop forever.
        let input = null();
        let output = File::options().write(true).open("/dev/null").unwrap();
        let command = words(&["sh", "-c", "kill -PIPE $$; exit 3"]);
        let mut program = Program::new(&command, input.as_fd(), output.as_fd()).unwrap();
        let ended = program.start(0, 0).unwrap().reap().unwrap();
        assert_eq!(ended.signal, Some(libc::SIGPIPE));
    }
}
