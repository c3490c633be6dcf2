//! The functions that the host gives to procedures, by way of the prelude.

use std::cell::RefCell;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::rc::Rc;

use jostle_daemon::log::one_line;
use mlua::serde::SerializeOptions;
use mlua::{
    Error, FromLuaMulti, IntoLuaMulti, Lua, LuaSerdeExt, LuaString, MultiValue, Table, UserData,
    UserDataMethods, Value,
};
use serde_transcode::Transcoder;

use super::pattern::{Capture, Match, Matcher, PatternError};
use super::{Call, Stage, exit_code};
use crate::spool::Spool;

/// Files that a call may have open at the same time.
const FILES: usize = 16;
/// Lines that a call may log, and characters of each.
const LOG_LINES: u32 = 16;
const LOG_LINE: usize = 1024;

/// The table `host` of `prelude.lua`.
pub(super) fn functions(lua: &Lua, call: &Rc<Call>) -> Result<Table, Error> {
    let host = Host {
        lua,
        call,
        table: lua.create_table()?,
    };
    host.flow()?;
    host.searches()?;
    host.files()?;
    host.table.set("memory", call.limits.memory)?;
    host.table.set("null", lua.null())?;
    host.give("json", |lua, call, text: LuaString| {
        decoded(lua, call, &text.as_bytes())
    })?;
    Ok(host.table)
}

struct Host<'a> {
    lua: &'a Lua,
    call: &'a Rc<Call>,
    table: Table,
}

impl Host<'_> {
    fn give<A: FromLuaMulti, R: IntoLuaMulti>(
        &self,
        name: &str,
        act: impl Fn(&Lua, &Rc<Call>, A) -> Result<R, Error> + 'static,
    ) -> Result<(), Error> {
        let call = Rc::clone(self.call);
        let function = self
            .lua
            .create_function(move |lua, given| act(lua, &call, given))?;
        self.table.set(name, function)
    }

    fn flow(&self) -> Result<(), Error> {
        self.give("check", |_, call, ()| call.check().map(drop))?;
        self.give("exit", |_, call, code: Option<Value>| {
            call.check()?;
            let code = code.map_or(Ok(0), |code| exit_code(&code))?;
            call.stage.set(Stage::Exited(code));
            Ok(())
        })?;
        // The seed comes from the system's randomness, which the standard library uses for
        // its maps.
        self.give("seed", |_, _, ()| {
            let seed = std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), 0);
            Ok(seed as i64)
        })?;
        self.give("write", |_, call, text: LuaString| {
            let mut output = call.output.borrow_mut();
            let limit = call.limits.output;
            if output.len() + text.as_bytes().len() > limit {
                return Err(Error::runtime(format!("more than {limit} bytes of output")));
            }
            output.extend_from_slice(&text.as_bytes());
            Ok(())
        })?;
        self.give("log", |_, call, text: LuaString| {
            call.logged.set(call.logged.get() + 1);
            if call.logged.get() <= LOG_LINES {
                let text = text.as_bytes();
                let text = String::from_utf8_lossy(&text[..text.len().min(LOG_LINE)]);
                (call.log)(&one_line(&text));
            }
            Ok(())
        })
    }

    fn searches(&self) -> Result<(), Error> {
        type Search = (LuaString, LuaString, usize, bool, Option<usize>);
        let scan =
            |lua: &Lua, call: &Rc<Call>, (subject, pattern, from, caret, not_end): Search| {
                let (text, pattern) = (subject.as_bytes(), pattern.as_bytes());
                let go_on = || call.check().is_ok();
                let found = Matcher::new(&text, &pattern, &go_on).search(from - 1, caret, not_end);
                match found {
                    Ok(None) => Ok(MultiValue::from_vec(vec![Value::Nil])),
                    Ok(Some(found)) => values(lua, &text, &found),
                    Err(PatternError::Malformed(why)) => Err(Error::runtime(why)),
                    Err(PatternError::Stopped) => call.check().map(|_| MultiValue::new()),
                }
            };
        self.give("scan", scan)?;
        type Plain = (LuaString, LuaString, usize);
        self.give("plainfind", |_, call, (subject, wanted, from): Plain| {
            let (text, wanted) = (subject.as_bytes(), wanted.as_bytes());
            let found = plain(&text, &wanted, from - 1, call)?;
            Ok(found.map_or((None, None), |at| (Some(at + 1), Some(at + wanted.len()))))
        })
    }

    fn files(&self) -> Result<(), Error> {
        self.give("size", |_, call, path: LuaString| {
            Ok(answer(spool(call).and_then(|s| s.size(&path.as_bytes()))))
        })?;
        type Read = (LuaString, Option<u64>, Option<u64>);
        self.give("read", |lua, call, (path, offset, length): Read| {
            let opened = spool(call).and_then(|s| s.file(&path.as_bytes()));
            let bytes = opened.and_then(|(file, size)| {
                let offset = offset.unwrap_or(0);
                part(&file, offset, size, length, call)
            });
            text(lua, answer(bytes))
        })?;
        self.give("open", |_, call, path: LuaString| {
            Ok(answer(open_file(call, &path.as_bytes())))
        })
    }
}

/// The first place at `from` or later. In linear time, which the interpreter's own is not, but
/// for texts of which long parts agree; and the clock is checked for each part.
fn plain(text: &[u8], wanted: &[u8], from: usize, call: &Call) -> Result<Option<usize>, Error> {
    const PART: usize = 64 << 10;
    let (head, rest) = wanted.split_at(wanted.len().min(PART));
    let finder = memchr::memmem::Finder::new(head);
    let mut at = from;
    while at + wanted.len() <= text.len() {
        call.check()?;
        let end = text.len().min(at + PART + head.len());
        at += match finder.find(&text[at..end]) {
            Some(skip) if text[at + skip + head.len()..].starts_with(rest) => {
                return Ok(Some(at + skip));
            }
            Some(skip) => skip + 1,
            None => end - head.len() + 1 - at,
        };
    }
    Ok(None)
}

/// First place, last place, captures.
fn values(lua: &Lua, text: &[u8], found: &Match) -> Result<MultiValue, Error> {
    let place = |place: usize| Value::Integer(place as i64);
    let mut values = vec![place(found.start + 1), place(found.end)];
    for capture in &found.captures {
        values.push(match *capture {
            Capture::Part { start, end } => Value::String(lua.create_string(&text[start..end])?),
            Capture::Place(at) | Capture::Open(at) => place(at + 1),
        });
    }
    Ok(MultiValue::from_vec(values))
}

/// A lookup's answer to a procedure: a value, or nil and a message.
type Answer<T> = (Option<T>, Option<String>);

fn answer<T>(result: io::Result<T>) -> Answer<T> {
    match result {
        Ok(value) => (Some(value), None),
        Err(error) => (None, Some(error.to_string())),
    }
}

fn text(lua: &Lua, (bytes, why): Answer<Vec<u8>>) -> Result<Answer<LuaString>, Error> {
    let text = bytes.map(|bytes| lua.create_string(bytes)).transpose()?;
    Ok((text, why))
}

/// A text that is read in small parts, as long as the call has time left.
struct Timed<'a>(&'a [u8], &'a Call);

impl io::Read for Timed<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let late = |error: Error| io::Error::other(error.to_string());
        self.1.check().map_err(late)?;
        self.0.read(buffer)
    }
}

/// The value of a JSON text, made in the interpreter, whose memory limit holds for it.
fn decoded(lua: &Lua, call: &Call, text: &[u8]) -> Result<Answer<Value>, Error> {
    let parts = io::BufReader::with_capacity(1024, Timed(text, call));
    let mut json = serde_json::Deserializer::from_reader(parts);
    // The functions of `table` want tables without a metatable.
    let options = SerializeOptions::new().set_array_metatable(false);
    let value = lua.to_value_with(&Transcoder::new(&mut json), options);
    let ended = |value| json.end().map(|()| value).map_err(Error::external);
    let value = value.and_then(ended).map_err(|error| error.to_string());
    call.check()?;
    match value {
        // The text is all that is left of an error that has gone through the parser.
        Err(why) if why.contains("not enough memory") => Err(Error::MemoryError(why)),
        // Ours and the parser's wrap each other.
        Err(why) => Ok((None, why.rsplit("serialize error: ").next().map(Into::into))),
        Ok(value) => Ok((Some(value), None)),
    }
}

fn spool(call: &Call) -> io::Result<&Spool> {
    let none = || io::Error::other("procd was started without --spool");
    call.spool.as_deref().ok_or_else(none)
}

/// A part of a file of this size, or the rest of it. At most half of the memory that a call
/// may have: the bytes exist twice for a moment, here and in the interpreter.
fn part(
    file: &File,
    offset: u64,
    size: u64,
    length: Option<u64>,
    call: &Call,
) -> io::Result<Vec<u8>> {
    let rest = size.saturating_sub(offset);
    let length = length.unwrap_or(rest).min(rest);
    if length > call.limits.memory as u64 / 2 {
        let text = format!("{length} bytes are too many at a time");
        return Err(io::Error::other(text));
    }
    let mut bytes = vec![0; length as usize];
    let mut filled = 0;
    while filled < bytes.len() {
        match file.read_at(&mut bytes[filled..], offset + filled as u64)? {
            // It has become shorter.
            0 => break,
            count => filled += count,
        }
    }
    bytes.truncate(filled);
    Ok(bytes)
}

/// A file that a procedure has opened; it is closed when the call ends.
#[derive(Clone)]
pub(super) struct OpenFile(Rc<RefCell<Option<Opened>>>);

struct Opened {
    file: File,
    size: u64,
    at: u64,
    call: Rc<Call>,
}

impl OpenFile {
    pub(super) fn close(&self) {
        self.0.borrow_mut().take();
    }

    fn is_open(&self) -> bool {
        self.0.borrow().is_some()
    }
}

fn open_file(call: &Rc<Call>, path: &[u8]) -> io::Result<OpenFile> {
    let mut files = call.files.borrow_mut();
    files.retain(OpenFile::is_open);
    if files.len() >= FILES {
        let text = format!("{FILES} files are open already");
        return Err(io::Error::other(text));
    }
    let (file, size) = spool(call)?.file(path)?;
    let opened = Opened {
        file,
        size,
        at: 0,
        call: Rc::clone(call),
    };
    let open = OpenFile(Rc::new(RefCell::new(Some(opened))));
    files.push(open.clone());
    Ok(open)
}

impl UserData for OpenFile {
    fn add_methods<M: UserDataMethods<Self>>(methods: &mut M) {
        methods.add_method(
            "size",
            |_, this, ()| Ok(this.with(|opened| Ok(opened.size))),
        );
        methods.add_method("seek", |_, this, to: u64| {
            Ok(this.with(|opened| {
                opened.at = to;
                Ok(to)
            }))
        });
        methods.add_method("read", |lua, this, length: Option<u64>| {
            let bytes = this.with(|opened| {
                let bytes = part(&opened.file, opened.at, opened.size, length, &opened.call)?;
                opened.at += bytes.len() as u64;
                Ok(bytes)
            });
            text(lua, bytes)
        });
        methods.add_method("close", |_, this, ()| {
            this.close();
            Ok(())
        });
    }
}

impl OpenFile {
    fn with<T>(&self, act: impl FnOnce(&mut Opened) -> io::Result<T>) -> Answer<T> {
        match self.0.borrow_mut().as_mut() {
            Some(opened) => answer(act(opened)),
            None => answer(Err(io::Error::other("the file is closed"))),
        }
    }
}
