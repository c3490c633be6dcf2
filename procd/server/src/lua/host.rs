//! The functions that the host gives to procedures, by way of the prelude.

use std::cell::RefCell;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::rc::Rc;

use jostle_daemon::log::one_line;
use mlua::{Error, Lua, LuaString, MultiValue, Table, UserData, UserDataMethods, Value};

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
    let table = lua.create_table()?;
    flow(lua, call, &table)?;
    searches(lua, call, &table)?;
    files(lua, call, &table)?;
    Ok(table)
}

fn flow(lua: &Lua, call: &Rc<Call>, table: &Table) -> Result<(), Error> {
    let mine = Rc::clone(call);
    table.set("check", lua.create_function(move |_, ()| mine.check())?)?;

    let mine = Rc::clone(call);
    let exit = move |_: &Lua, code: Option<Value>| -> Result<(), Error> {
        mine.check()?;
        let code = code.map_or(Ok(0), |code| exit_code(&code))?;
        mine.stage.set(Stage::Exited(code));
        Ok(())
    };
    table.set("exit", lua.create_function(exit)?)?;

    // The seed comes from the system's randomness, which the standard library uses for
    // its maps.
    let seed = |_: &Lua, ()| {
        let seed = std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), 0);
        Ok(seed as i64)
    };
    table.set("seed", lua.create_function(seed)?)?;

    let mine = Rc::clone(call);
    let write = move |_: &Lua, text: LuaString| {
        let mut output = mine.output.borrow_mut();
        if output.len() + text.as_bytes().len() > mine.limits.output {
            let limit = mine.limits.output;
            return Err(Error::runtime(format!("more than {limit} bytes of output")));
        }
        output.extend_from_slice(&text.as_bytes());
        Ok(())
    };
    table.set("write", lua.create_function(write)?)?;

    let mine = Rc::clone(call);
    let log = move |_: &Lua, text: LuaString| {
        mine.logged.set(mine.logged.get() + 1);
        if mine.logged.get() <= LOG_LINES {
            let text = text.as_bytes();
            let text = String::from_utf8_lossy(&text[..text.len().min(LOG_LINE)]);
            (mine.log)(&one_line(&text));
        }
        Ok(())
    };
    table.set("log", lua.create_function(log)?)
}

fn searches(lua: &Lua, call: &Rc<Call>, table: &Table) -> Result<(), Error> {
    type Search = (LuaString, LuaString, usize, bool, Option<usize>);
    let mine = Rc::clone(call);
    let scan = move |lua: &Lua, (subject, pattern, from, caret, not_end): Search| {
        let (text, pattern) = (subject.as_bytes(), pattern.as_bytes());
        let go_on = || mine.check().is_ok();
        let found = Matcher::new(&text, &pattern, &go_on).search(from - 1, caret, not_end);
        match found {
            Ok(None) => Ok(MultiValue::from_vec(vec![Value::Nil])),
            Ok(Some(found)) => values(lua, &text, &found),
            Err(PatternError::Malformed(why)) => Err(Error::runtime(why)),
            Err(PatternError::Stopped) => mine.check().map(|()| MultiValue::new()),
        }
    };
    table.set("scan", lua.create_function(scan)?)?;

    // In linear time, which the interpreter's own is not.
    let plain = move |_: &Lua, (subject, wanted, from): (LuaString, LuaString, usize)| {
        let (text, wanted) = (subject.as_bytes(), wanted.as_bytes());
        let found = memchr::memmem::find(&text[from - 1..], &wanted);
        Ok(found.map_or((None, None), |at| {
            (Some(from + at), Some(from + at + wanted.len() - 1))
        }))
    };
    table.set("plainfind", lua.create_function(plain)?)
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

/// What a lookup gives a procedure: a value, or nil and a message.
type Answer<T> = (Option<T>, Option<String>);

fn answer<T>(result: io::Result<T>) -> Answer<T> {
    match result {
        Ok(value) => (Some(value), None),
        Err(error) => (None, Some(error.to_string())),
    }
}

fn files(lua: &Lua, call: &Rc<Call>, table: &Table) -> Result<(), Error> {
    let mine = Rc::clone(call);
    let size = move |_: &Lua, path: LuaString| {
        Ok(answer(spool(&mine).and_then(|s| s.size(&path.as_bytes()))))
    };
    table.set("size", lua.create_function(size)?)?;

    let mine = Rc::clone(call);
    type Read = (LuaString, Option<u64>, Option<u64>);
    let read = move |lua: &Lua, (path, offset, length): Read| {
        let opened = spool(&mine).and_then(|s| s.file(&path.as_bytes()));
        let bytes = opened.and_then(|(file, size)| {
            let offset = offset.unwrap_or(0);
            let rest = size.saturating_sub(offset);
            part(&file, offset, length.unwrap_or(rest).min(rest), &mine)
        });
        let (bytes, why) = answer(bytes);
        let text = bytes.map(|bytes| lua.create_string(bytes)).transpose()?;
        Ok((text, why))
    };
    table.set("read", lua.create_function(read)?)?;

    let mine = Rc::clone(call);
    let open = move |_: &Lua, path: LuaString| Ok(answer(open_file(&mine, &path.as_bytes())));
    table.set("open", lua.create_function(open)?)
}

fn spool(call: &Call) -> io::Result<&Spool> {
    let none = || io::Error::other("procd was started without --spool");
    call.spool.as_deref().ok_or_else(none)
}

/// At most half of the memory that a call may have: the bytes exist twice for a
/// moment, here and in the interpreter.
fn part(file: &File, offset: u64, length: u64, call: &Call) -> io::Result<Vec<u8>> {
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
            let (bytes, why) = this.with(|opened| {
                let rest = opened.size.saturating_sub(opened.at);
                let length = length.unwrap_or(rest).min(rest);
                let bytes = part(&opened.file, opened.at, length, &opened.call)?;
                opened.at += bytes.len() as u64;
                Ok(bytes)
            });
            let text = bytes.map(|bytes| lua.create_string(bytes)).transpose()?;
            Ok((text, why))
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
