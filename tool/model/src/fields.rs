//! The meanings of the fields of a result file: read from the comments on the types of its records,
//! which are the one place that describes them. `jostle explain FIELD` prints it.

/// A record or a part of one, with its fields.
#[derive(Debug, PartialEq, Eq)]
pub struct Part {
    /// Where it stands: `run`, `run.kept`. A part that several have stands where it comes
    /// first.
    pub place: String,
    /// The comment on its type.
    pub meaning: String,
    /// Its fields, in their order.
    pub fields: Vec<Described>,
}

/// A field.
#[derive(Debug, PartialEq, Eq)]
pub struct Described {
    /// As in the file, with what it holds: `phases[]?`. `[]`: a list, `{}`: a map by name, `?`: it
    /// may be absent.
    pub name: String,
    /// The comment on the field.
    pub meaning: String,
    /// The values that it can have, each with its meaning; empty where these are not words.
    pub values: Vec<(String, String)>,
    /// The place of the part whose fields it has.
    pub part: Option<String>,
}

impl Described {
    /// The name alone.
    pub fn bare_name(&self) -> &str {
        self.name.trim_end_matches(['[', ']', '{', '}', '?'])
    }
}

macro_rules! sources {
    ($($file:literal)*) => { &[$(($file, include_str!($file))),*] };
}

/// The files whose types the records have; those of the options in `plan` are not among them.
const SOURCES: &[(&str, &str)] = sources! {
    "record/mod.rs" "record/accounts.rs" "record/at.rs" "record/causes.rs"
    "record/distribution.rs" "record/environment.rs" "record/exclusion.rs" "record/facts.rs"
    "record/fit.rs" "record/interference.rs" "record/judged.rs" "record/kept.rs" "record/parts.rs" "record/recovery.rs"
    "record/resume.rs" "record/run.rs" "record/spread.rs" "record/times.rs" "record/verdict.rs" "record/verified.rs"
    "calibrated.rs" "connect.rs" "hosts.rs" "judged.rs" "open_loop.rs"
};

/// All parts of all records.
pub fn parts() -> Vec<Part> {
    let mut types = Vec::new();
    for (file, text) in SOURCES {
        parse(file, text, &mut types);
    }
    let mut parts = Vec::new();
    let root = find(&types, "Record", "record/mod.rs");
    for (record, of) in root.map_or_else(Vec::new, |root| members(&types, root)) {
        if let Some(of) = of {
            describe(&types, of, &record.name, &mut Vec::new(), &mut parts);
        }
    }
    parts
}

/// A public type of a source file: a struct with its fields, or an enum with its values.
#[derive(Debug)]
struct Type {
    name: String,
    file: &'static str,
    meaning: String,
    is_enum: bool,
    members: Vec<Member>,
}

/// A field of a struct, or a value of an enum.
#[derive(Debug)]
struct Member {
    name: String,
    meaning: String,
    /// As written: `Option<Vec<Neighbour>>`; that of an enum's value, if it has one.
    of_type: String,
    may_be_absent: bool,
    /// The fields of its type stand in its place.
    is_flat: bool,
}

/// Adds the public structs and enums of a source file that rustfmt has formatted.
fn parse(file: &'static str, text: &str, types: &mut Vec<Type>) {
    let (mut meaning, mut attributes, mut of_all) = (String::new(), String::new(), String::new());
    let mut open: Option<Type> = None;
    for line in text.lines() {
        let indent = if open.is_some() { "    " } else { "" };
        let line = match line.strip_prefix(indent) {
            Some(line) if !line.starts_with(' ') => line,
            _ => {
                types.extend(open.take_if(|_| line == "}"));
                continue;
            }
        };
        if let Some(comment) = line.strip_prefix("///") {
            meaning += comment;
        } else if line.starts_with("#[") {
            attributes += line;
        } else if line.is_empty() {
            meaning.clear();
        } else {
            let meaning = plain(&std::mem::take(&mut meaning));
            let attributes = std::mem::take(&mut attributes);
            match &mut open {
                Some(of) => of
                    .members
                    .extend(member(line, meaning, &attributes, &of_all)),
                None => {
                    open = begin(file, line, meaning);
                    of_all = attributes;
                }
            }
        }
    }
}

/// The type that this line begins, if it does.
fn begin(file: &'static str, line: &str, meaning: String) -> Option<Type> {
    let line = line.strip_prefix("pub ")?.strip_suffix(" {")?;
    let (kind, name) = line.split_once(' ')?;
    ["struct", "enum"].contains(&kind).then(|| Type {
        name: name.to_owned(),
        file,
        meaning,
        is_enum: kind == "enum",
        members: Vec::new(),
    })
}

/// The field or the value that this line declares, if it does.
fn member(line: &str, meaning: String, attributes: &str, of_all: &str) -> Option<Member> {
    let (name, of_type) = match line.strip_prefix("pub ") {
        Some(declared) => declared.trim_end_matches(',').split_once(": ")?,
        None => {
            let value = line.split([',', ' ']).next()?.trim_end_matches(')');
            value.split_once('(').unwrap_or((value, ""))
        }
    };
    let written = || match quoted(of_all, "rename_all = ").as_deref() {
        Some("lowercase") => name.to_lowercase(),
        Some("kebab-case") => kebab(name),
        _ => name.to_owned(),
    };
    name.starts_with(char::is_alphabetic).then(|| Member {
        name: quoted(attributes, "rename = ").unwrap_or_else(written),
        meaning,
        of_type: of_type.to_owned(),
        may_be_absent: attributes.contains("skip_serializing_if")
            || of_type.starts_with("Option<") && of_all.contains("skip_serializing_none"),
        is_flat: attributes.contains("flatten"),
    })
}

fn kebab(name: &str) -> String {
    let mut word = String::new();
    for letter in name.chars() {
        if letter.is_uppercase() && !word.is_empty() {
            word.push('-');
        }
        word.extend(letter.to_lowercase());
    }
    word
}

/// The text between quotes behind a key of an attribute.
fn quoted(attributes: &str, key: &str) -> Option<String> {
    let (_, behind) = attributes.split_once(&format!("{key}\""))?;
    behind.split_once('"').map(|(text, _)| text.to_owned())
}

/// A comment without the marks and addresses of its links.
fn plain(comment: &str) -> String {
    let mut text = comment.trim().replace("[`", "`").replace("`]", "`");
    while let Some((before, behind)) = text.split_once("](") {
        let Some(((before, words), (_, behind))) =
            before.rsplit_once('[').zip(behind.split_once(')'))
        else {
            break;
        };
        text = format!("{before}{words}{behind}");
    }
    text
}

/// The type of this name, of the same file if it has one.
fn find<'a>(types: &'a [Type], name: &str, file: &str) -> Option<&'a Type> {
    let named = || types.iter().filter(|of| of.name == name);
    let here = named().find(|of| of.file == file);
    here.or_else(|| named().next())
        .filter(|of| !of.members.is_empty())
}

/// The fields of a type, each with the type that it holds. Those of a flat one stand in its
/// place, as in the file.
fn members<'a>(types: &'a [Type], of: &'a Type) -> Vec<(&'a Member, Option<&'a Type>)> {
    let fields = of.members.iter().flat_map(|member| {
        let inner = member.of_type.trim_end_matches('>');
        let inner = inner.rsplit(['<', ' ']).next().unwrap_or(inner);
        match find(types, inner, of.file) {
            Some(inner) if member.is_flat => members(types, inner),
            inner => vec![(member, inner)],
        }
    });
    fields.collect()
}

/// Adds a type, with its fields at this place, and behind it those of its fields.
fn describe<'a>(
    types: &'a [Type],
    of: &'a Type,
    place: &str,
    known: &mut Vec<(&'a Type, String)>,
    parts: &mut Vec<Part>,
) {
    let mut below = Vec::new();
    let mut fields = Vec::new();
    for (member, inner) in members(types, of) {
        let part = inner.filter(|inner| !inner.is_enum).map(|inner| {
            let seen = known.iter().find(|(of, _)| std::ptr::eq(*of, inner));
            if let Some((_, place)) = seen {
                return place.clone();
            }
            let place = format!("{place}.{}", member.name);
            known.push((inner, place.clone()));
            below.push((inner, place.clone()));
            place
        });
        let values = inner.filter(|inner| inner.is_enum);
        let values = values.map_or(&[][..], |of| &of.members);
        fields.push(Described {
            name: with_marks(member),
            meaning: member.meaning.clone(),
            values: values
                .iter()
                .map(|value| (value.name.clone(), value.meaning.clone()))
                .collect(),
            part,
        });
    }
    parts.push(Part {
        place: place.to_owned(),
        meaning: of.meaning.clone(),
        fields,
    });
    for (inner, place) in below {
        describe(types, inner, &place, known, parts);
    }
}

fn with_marks(member: &Member) -> String {
    let of_type = &member.of_type;
    let list = of_type.contains("Vec<") || of_type.contains('[');
    let map = of_type.contains("Map<") || ["Counts", "Signs"].contains(&of_type.as_str());
    let marks = [(list, "[]"), (map, "{}"), (member.may_be_absent, "?")];
    let marks = marks.into_iter();
    let marks = marks.filter_map(|(has, mark)| has.then_some(mark));
    match member.is_flat {
        // Its fields have no type here; the meaning names them.
        true => format!("({})", member.name),
        false => member.name.clone() + &marks.collect::<String>(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_has_the_file_s_name_its_marks_its_values_and_the_place_of_its_part() {
        let parts = parts();
        let field = |place: &str, name: &str| {
            let part = parts.iter().find(|part| part.place == place).unwrap();
            let mut fields = part.fields.iter();
            fields.find(|field| field.bare_name() == name).unwrap()
        };
        let renamed = field("run", "generators");
        assert_eq!(renamed.name, "generators[]?");
        assert_eq!(renamed.part.as_deref(), Some("run.generators"));
        // Several parts have it.
        let waits = ["acquire_ns", "reader_wait_ns"].map(|name| field("run", name).part.as_deref());
        assert_eq!(waits, [Some("run.acquire_ns"); 2]);
        // In place of a flat part, and without the address of its link.
        assert_eq!(field("run", "start_spread_ns").name, "start_spread_ns");
        assert!(
            field("run", "null")
                .meaning
                .contains(" made beside this run;")
        );
        let told_by = &field("run.recovery", "told_by").values;
        assert!(
            told_by.iter().any(|(value, _)| value == "release"),
            "{told_by:?}"
        );
    }

    #[test]
    fn every_record_has_its_parts_and_every_field_a_meaning() {
        let parts = parts();
        for record in ["experiment", "run", "verdict", "end", "doubled"] {
            assert!(parts.iter().any(|part| part.place == record), "{record}");
        }
        for part in &parts {
            for field in &part.fields {
                assert!(!field.meaning.is_empty(), "{} {}", part.place, field.name);
            }
        }
    }
}
