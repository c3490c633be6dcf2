//! Procedures in Lua: compiled once, run in sandboxed states.
//!
//! A state belongs to one procedure and one thread, and is thrown away when a
//! call ran out of time or memory. Each call has an environment of its own. The
//! interpreter is PUC Lua 5.4 rather than LuaJIT: its count hook fires in every
//! loop, compiled traces have none, and its allocator can be given a limit.
//! What procedures see is in `prelude.lua`.

mod host;
pub(crate) mod pattern;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use mlua::chunk::ChunkMode;
use mlua::{Error, Function, HookTriggers, Lua, LuaOptions, StdLib, Table, Value, VmState};
use rustix::time::{ClockId, clock_gettime};

use crate::query::Args;
use crate::spool::Spool;
use host::OpenFile;

/// Instructions between two checks of the clock at most. Fewer would slow loops down.
const INSTRUCTIONS: u64 = 200;

/// Nanoseconds that an instruction takes at most for each byte of memory that a procedure may
/// have: it reads a number from a string that fills the memory, or collects garbage in all of it.
const INSTRUCTION_NS_PER_BYTE: u64 = 2;

/// The time by which instructions between two checks may exceed the limit.
const GRACE: Duration = Duration::from_millis(25);

/// Bounds of one call.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Time from start to end.
    pub time: Duration,
    /// Bytes of the state that runs it, code and garbage included.
    pub memory: usize,
    /// Bytes that it may print.
    pub output: usize,
}

/// A procedure that compiles.
#[derive(Debug)]
pub(crate) struct Code {
    bytecode: Vec<u8>,
    name: String,
}

impl Code {
    /// Compiles a procedure's source; `name` stands in error messages.
    ///
    /// # Errors
    /// The interpreter's message, with the line.
    pub(crate) fn compile(name: &str, source: &[u8]) -> Result<Code, String> {
        let lua = Lua::new_with(StdLib::NONE, LuaOptions::default()).map_err(|e| message(&e))?;
        let chunk = lua.load(source).set_name(format!("={name}"));
        // Only text: a binary chunk can do anything to the interpreter.
        let function = chunk.set_mode(ChunkMode::Text).into_function();
        let bytecode = function.map_err(|e| message(&e))?.dump(false);
        Ok(Code {
            bytecode,
            name: name.to_owned(),
        })
    }
}

/// How a call ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// With an exit code, having printed this.
    Exit(u8, Vec<u8>),
    /// With an error.
    Failed(String),
    /// Its time was up.
    Late,
    /// It needed more memory than it may have.
    Memory,
}

/// Interpreter shared by a call and the functions that it calls.
struct Call {
    spool: Option<Arc<Spool>>,
    log: Arc<dyn Fn(&str) + Send + Sync>,
    limits: Limits,
    deadline: Cell<Duration>,
    /// Instructions between two checks of the clock.
    interval: Cell<u32>,
    stage: Cell<Stage>,
    output: RefCell<Vec<u8>>,
    logged: Cell<u32>,
    files: RefCell<Vec<OpenFile>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Running,
    Late,
    Exited(u8),
}

impl Call {
    /// The time that is left; an error if the call is over. Functions raise it wherever a
    /// procedure could catch an error.
    fn check(&self) -> Result<Duration, Error> {
        let left = self.deadline.get().saturating_sub(now());
        if self.stage.get() == Stage::Running && left.is_zero() {
            self.stage.set(Stage::Late);
        }
        match self.stage.get() {
            Stage::Running => Ok(left),
            Stage::Late => Err(Error::runtime("time is up")),
            Stage::Exited(_) => Err(Error::runtime("exit")),
        }
    }
}

impl Limits {
    /// Instructions until the next check of the clock, when so much time is left: so few that
    /// they cannot outlast it by more than the grace, or a single one.
    fn instructions(&self, left: Duration) -> u32 {
        let slowest_ns = self.memory as u64 * INSTRUCTION_NS_PER_BYTE;
        let left_ns = (left + GRACE).as_nanos() as u64;
        (left_ns / slowest_ns.max(1)).clamp(1, INSTRUCTIONS) as u32
    }
}

/// Has the interpreter check the clock, the more often the less time is left.
fn watch(lua: &Lua, call: &Rc<Call>, left: Duration) -> Result<(), Error> {
    let interval = call.limits.instructions(left);
    if call.interval.replace(interval) == interval {
        return Ok(());
    }
    let call = Rc::clone(call);
    let triggers = HookTriggers::new().every_nth_instruction(interval);
    lua.set_global_hook(triggers, move |lua, _| {
        watch(lua, &call, call.check()?).map(|()| VmState::Continue)
    })
}

/// The monotonic clock as of the last tick (4 ms with most kernels), which is read in a few
/// nanoseconds.
fn now() -> Duration {
    let time = clock_gettime(ClockId::MonotonicCoarse);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// An interpreter with one procedure in it.
pub(crate) struct Interpreter {
    lua: Lua,
    chunk: Function,
    /// Makes the environment of a call.
    environment: Function,
    /// The interpreter's own `pcall`.
    protected: Function,
    call: Rc<Call>,
}

impl std::fmt::Debug for Interpreter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Interpreter").finish_non_exhaustive()
    }
}

impl Interpreter {
    /// A state for a procedure that logs by `log` and reads below `spool`.
    ///
    /// # Errors
    /// If the memory limit is too small for the library and the procedure.
    pub(crate) fn new(
        code: &Code,
        limits: Limits,
        spool: Option<Arc<Spool>>,
        log: Arc<dyn Fn(&str) + Send + Sync>,
    ) -> Result<Interpreter, String> {
        let call = Rc::new(Call {
            spool,
            log,
            limits,
            deadline: Cell::default(),
            interval: Cell::new(0),
            stage: Cell::new(Stage::Running),
            output: RefCell::default(),
            logged: Cell::new(0),
            files: RefCell::default(),
        });
        Interpreter::build(code, limits, call).map_err(|error| message(&error))
    }

    fn build(code: &Code, limits: Limits, call: Rc<Call>) -> Result<Interpreter, Error> {
        let libraries = StdLib::STRING | StdLib::TABLE | StdLib::MATH | StdLib::UTF8;
        let lua = Lua::new_with(libraries, LuaOptions::default())?;
        lua.set_memory_limit(limits.memory)?;
        let prelude = lua.load(include_str!("prelude.lua")).set_name("=prelude");
        let (environment, protected) = prelude.call(host::functions(&lua, &call)?)?;
        let chunk = lua
            .load(code.bytecode.as_slice())
            .set_name(format!("={}", code.name))
            .set_mode(ChunkMode::Binary)
            .into_function()?;
        Ok(Interpreter {
            lua,
            chunk,
            environment,
            protected,
            call,
        })
    }

    /// Runs the procedure once. Also returns whether the state may be used again.
    pub(crate) fn call(&self, args: &Args, body: &[u8]) -> (Outcome, bool) {
        let call = &*self.call;
        // A tick may be 4 ms old: from it, a call could end before its time.
        let start = clock_gettime(ClockId::Monotonic);
        let start = Duration::new(start.tv_sec as u64, start.tv_nsec as u32);
        call.deadline.set(start + call.limits.time);
        call.stage.set(Stage::Running);
        call.logged.set(0);
        call.output.borrow_mut().clear();
        let watched = watch(&self.lua, &self.call, call.limits.time);
        let result = watched.and_then(|()| self.run_with(args, body));
        for file in call.files.borrow_mut().drain(..) {
            file.close();
        }
        let outcome = self.outcome(result);
        let sound = !matches!(outcome, Outcome::Late | Outcome::Memory);
        if sound && self.lua.used_memory() > call.limits.memory / 2 {
            // So that one call's garbage is not the next one's failure.
            return (outcome, self.lua.gc_collect().is_ok());
        }
        (outcome, sound)
    }

    /// Whether it ran to its end, and what it returned or failed with.
    fn run_with(&self, args: &Args, body: &[u8]) -> Result<(bool, Value), Error> {
        let table = self.arguments(args)?;
        let body = match body {
            [] => Value::Nil,
            body => Value::String(self.lua.create_string(body)?),
        };
        let environment: Table = self.environment.call((table, body, self.caller(args)?))?;
        self.chunk.set_environment(environment)?;
        self.protected.call(&self.chunk)
    }

    fn arguments(&self, args: &Args) -> Result<Table, Error> {
        let table = self
            .lua
            .create_table_with_capacity(args.positional.len(), args.named.len())?;
        for (index, value) in args.positional.iter().enumerate() {
            table.raw_set(index + 1, self.lua.create_string(value)?)?;
        }
        for (name, value) in &args.named {
            let name = self.lua.create_string(name)?;
            table.raw_set(name, self.lua.create_string(value)?)?;
        }
        Ok(table)
    }

    fn caller(&self, args: &Args) -> Result<Option<Table>, Error> {
        let mut table = None;
        for (name, value) in &args.caller {
            let table: &Table = table.get_or_insert(self.lua.create_table()?);
            table.raw_set(*name, self.lua.create_string(value)?)?;
        }
        Ok(table)
    }

    fn outcome(&self, result: Result<(bool, Value), Error>) -> Outcome {
        let output = || self.call.output.take();
        match (self.call.stage.get(), result) {
            (Stage::Exited(code), _) => Outcome::Exit(code, output()),
            (Stage::Late, _) => Outcome::Late,
            (Stage::Running, Ok((true, Value::Nil))) => Outcome::Exit(0, output()),
            (Stage::Running, Ok((true, value))) => match exit_code(&value) {
                Ok(code) => Outcome::Exit(code, output()),
                Err(error) => Outcome::Failed(message(&error)),
            },
            (Stage::Running, Ok((false, value))) => failed(&value),
            (Stage::Running, Err(error)) => failed(&Value::Error(Box::new(error))),
        }
    }
}

/// Runs a procedure once, without a spool, for those who measure how long that takes; false if it
/// does not compile.
pub fn run_once(source: &[u8], limits: Limits) -> bool {
    let code = Code::compile("once", source).map_err(drop);
    let run = |code| Interpreter::new(&code, limits, None, Arc::new(|_| {})).map_err(drop);
    let state = code.and_then(run);
    state.map(|state| state.call(&Args::default(), b"")).is_ok()
}

/// The outcome of an error that the procedure did not catch.
fn failed(value: &Value) -> Outcome {
    match value {
        Value::Error(error) if is_memory(error) => Outcome::Memory,
        Value::Error(error) => Outcome::Failed(message(error)),
        // The interpreter's own message for this.
        Value::String(text) if text.as_bytes() == b"not enough memory" => Outcome::Memory,
        Value::String(text) => Outcome::Failed(first_line(&text.to_string_lossy())),
        // No metamethod is called to describe the value.
        other => Outcome::Failed(format!("an error that is a {}", other.type_name())),
    }
}

/// The exit code, 0 to 255: an integer, or a float that equals one.
fn exit_code(value: &Value) -> Result<u8, Error> {
    let number = match value {
        Value::Integer(number) => Some(*number),
        Value::Number(number) if number.fract() == 0.0 => Some(*number as i64),
        _ => None,
    };
    number
        .and_then(|number| u8::try_from(number).ok())
        .ok_or_else(|| Error::runtime("an exit code is an integer from 0 to 255"))
}

fn is_memory(error: &Error) -> bool {
    match error {
        Error::MemoryError(_) => true,
        Error::CallbackError { cause, .. } => is_memory(cause),
        _ => false,
    }
}

/// The message without the trace, in one line: it goes to logs and callers.
fn message(error: &Error) -> String {
    let text = match error {
        Error::SyntaxError { message, .. } | Error::RuntimeError(message) => message.clone(),
        Error::CallbackError { cause, .. } => return message(cause),
        other => other.to_string(),
    };
    first_line(&text)
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_owned()
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
