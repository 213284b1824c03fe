//! Converts `programs.toml` to static tables, so that no run has to parse it.
//!
//! An unknown key is an error: a misspelt one would make a program look harmless.

use std::error::Error;
use std::fmt::Write;
use std::path::Path;

use toml::{Table, Value};

const DATA: &str = "programs.toml";

/// Keys that describe an effect, with the name of the effect.
const EFFECTS: [(&str, &str); 13] = [
    ("writes", "Writes"),
    ("pipes", "Pipes"),
    ("changes", "Changes"),
    ("destroys", "Destroys"),
    ("mutates", "Mutates"),
    ("networks", "Networks"),
    ("escapes", "Escapes"),
    ("reaches", "Reaches"),
    ("talks", "Talks"),
    ("edits", "Edits"),
    ("text", "RunsText"),
    ("doubts", "Doubts"),
    ("looks", "Looks"),
];

/// Keys of a rule that are conditions; the value is a list of words, a number or `true`.
const CONDITIONS: [(&str, &str); 40] = [
    ("name", "Name"),
    ("any", "Any"),
    ("without", "Without"),
    ("starts", "Starts"),
    ("contains", "Contains"),
    ("first", "First"),
    ("first_not", "FirstNot"),
    ("second", "Second"),
    ("no_boolean", "NoBoolean"),
    ("only", "Only"),
    ("leading", "Leading"),
    ("flags", "Flags"),
    ("letters", "Letters"),
    ("given", "Given"),
    ("absent", "Absent"),
    ("unlisted", "Unlisted"),
    ("listed", "Listed"),
    ("set", "Set"),
    ("lacks", "Lacks"),
    ("local_paths", "LocalPaths"),
    ("wheels", "Wheels"),
    ("loopback", "Loopback"),
    ("loopback_first", "LoopbackFirst"),
    ("loopback_default", "LoopbackDefault"),
    ("plain", "Plain"),
    ("operand", "Operand"),
    ("operand_not", "OperandNot"),
    ("names", "Names"),
    ("remote", "Remote"),
    ("address", "Address"),
    ("unknown", "Unknown"),
    ("hidden", "Hidden"),
    ("asks", "Asks"),
    ("no_userns", "NoUserns"),
    ("foreign_home", "ForeignHome"),
    ("args_min", "ArgsMin"),
    ("args_max", "ArgsMax"),
    ("operands_min", "OperandsMin"),
    ("operands_max", "OperandsMax"),
    ("alone", "ArgsMax(0), When::Asks"),
];

/// Keys of `verbs` that are lists of subcommands, with their effects.
const VERBS: [(&str, &str); 5] = [
    ("looks", ""),
    ("asks", r#"Does::Networks("queries the network")"#),
    ("networks", r#"Does::Networks("works over the network"), Does::Mutates("writes downloaded files")"#),
    ("destroys", r#"Does::Destroys("deletes files")"#),
    ("mutates", r#"Does::Mutates("can write")"#),
];

type Result<T> = std::result::Result<T, Box<dyn Error>>;

fn main() -> Result<()> {
    println!("cargo::rerun-if-changed={DATA}");
    println!("cargo::rerun-if-changed=build.rs");
    let mut data: Table = std::fs::read_to_string(DATA)?.parse()?;
    let (mut programs, mut names, mut subcommands) = (String::new(), Vec::new(), Vec::new());
    let mut count = 0_u16;
    for (key, list) in [("program", &mut names), ("subcommand", &mut subcommands)] {
        for mut entry in tables(&mut data, key)? {
            let own = text(&mut entry, "names")?;
            let parents = text(&mut entry, "of")?;
            let parents = if parents.is_empty() { vec![String::new()] } else { split(&parents, ',') };
            for parent in &parents {
                let dot = if parent.is_empty() { "" } else { " " };
                list.extend(own.split_whitespace().map(|name| (format!("{parent}{dot}{name}"), count)));
            }
            let program = program(&mut entry).and_then(|program| empty(&entry).map(|()| program));
            writeln!(programs, "{},", program.map_err(|error| format!("{DATA}: {own}: {error}"))?)?;
            count += 1;
        }
    }
    let mut out = format!("static PROGRAMS: [Program; {count}] = [\n{programs}];\n");
    write!(
        out,
        "static NAMES: Names = {};\nstatic SUBCOMMANDS: Names = {};\n",
        index(names)?,
        index(subcommands)?
    )?;
    let mut lists = String::new();
    let mut all = table(&mut data, "lists")?;
    for name in all.keys().cloned().collect::<Vec<_>>() {
        writeln!(lists, "pub const {}: &str = {:?};", name.to_uppercase(), text(&mut all, &name)?)?;
    }
    empty(&data)?;
    let directory = std::env::var("OUT_DIR")?;
    std::fs::write(Path::new(&directory).join("programs.rs"), out)?;
    std::fs::write(Path::new(&directory).join("lists.rs"), lists)?;
    Ok(())
}

/// The sorted names in one text, with the start of each: needs neither pointers nor a linear search.
fn index(mut names: Vec<(String, u16)>) -> Result<String> {
    names.sort();
    if let Some(pair) = names.windows(2).find(|pair| pair[0].0 == pair[1].0) {
        return Err(format!("{DATA}: duplicate name {}", pair[0].0).into());
    }
    let (mut text, mut index) = (String::new(), String::new());
    for (name, program) in names {
        write!(index, "({}, {program}),", text.len())?;
        text.push_str(&name);
    }
    Ok(format!("Names {{ text: {text:?}, index: &[{index}] }}"))
}

fn program(entry: &mut Table) -> Result<String> {
    let options = options(entry)?;
    let mut rules = String::new();
    for mut rule in tables(entry, "rules")? {
        let stop = flag(&mut rule, "stop")?;
        let when = conditions(&mut rule)?;
        write!(rules, "Rule {{ when: &[{when}], does: &[{}], stop: {stop} }},", effects(&mut rule)?)?;
        empty(&rule)?;
    }
    let mut does = table(entry, "does")?;
    let does_all = effects(&mut does)?;
    empty(&does)?;
    let verbs = match entry.remove("verbs") {
        Some(Value::Table(mut verbs)) => format!("Some(&{})", self::verbs(&mut verbs)?),
        Some(_) => return Err("verbs must be a table".into()),
        None => "None".to_owned(),
    };
    let operands = match text(entry, "operands")?.as_str() {
        "" => "Ignored",
        "written" => "Written",
        "last_written" => "LastWritten",
        "run" => "Run",
        other => return Err(format!("operands = {other}").into()),
    };
    let skip = number(entry, "skip")?;
    let runs = match (text(entry, "runs")?.as_str(), text(entry, "runs_after")?) {
        ("", after) if after.is_empty() => "Nothing".to_owned(),
        ("", after) => format!("After({after:?})"),
        ("words", _) => format!("Words {{ skip: {skip} }}"),
        ("text", _) => format!("Text {{ skip: {skip} }}"),
        ("assignments", _) => "Assignments".to_owned(),
        (other, _) => return Err(format!("runs = {other}").into()),
    };
    let code = match text(entry, "code")? {
        code if code.is_empty() => "None".to_owned(),
        code => format!("Some({code})"),
    };
    let screen = match entry.remove("screen") {
        Some(Value::Table(mut screen)) => {
            let (batch, instead) = (text(&mut screen, "batch")?, text(&mut screen, "instead")?);
            empty(&screen)?;
            format!("Some(Screen {{ batch: {batch:?}, instead: {instead:?} }})")
        }
        Some(_) => return Err("screen must be a table".into()),
        None => "None".to_owned(),
    };
    let always = text(entry, "always")?;
    let always: String = split(&always, ',')
        .iter()
        .filter(|words| !words.is_empty())
        .map(|words| format!("{words:?},"))
        .collect();
    let (always_names, directs) = (text(entry, "always_names")?, text(entry, "directs")?);
    let (any_option, options_first) = (flag(entry, "any_option")?, flag(entry, "options_first")?);
    let closed = flag(entry, "closed")?;
    Ok(format!(
        "Program {{ options: &[{options}], any_option: {any_option}, closed: {closed}, \
         options_first: {options_first}, rules: &[{rules}], does: &[{does_all}], operands: Operands::{operands}, \
         verbs: {verbs}, runs: Runs::{runs}, code: {code}, screen: {screen}, always: &[{always}], \
         always_names: {always_names:?}, directs: {directs:?} }}"
    ))
}

/// Options with an effect come first: an abbreviated long option means the first match.
fn options(entry: &mut Table) -> Result<String> {
    let mut options = String::new();
    for mut option in tables(entry, "options")? {
        let names = text(&mut option, "is")?;
        let takes = text(&mut option, "takes")?;
        let needs_value = ["writes", "pipes", "text"].iter().any(|key| option.contains_key(*key));
        let takes = match takes.as_str() {
            "" if needs_value => "Value",
            "" | "nothing" => "Nothing",
            "value" => "Value",
            "attached" => "Attached",
            other => return Err(format!("takes = {other}").into()),
        };
        let does = effects(&mut option)?;
        write!(
            options,
            "Opt({names:?}, Takes::{takes}, {}),",
            if does.is_empty() { "Does::Nothing" } else { &does }
        )?;
        empty(&option)?;
    }
    for (key, takes, does) in [
        ("looks", "Nothing", "Looks"),
        ("flags", "Nothing", "Nothing"),
        ("values", "Value", "Nothing"),
        ("attached", "Attached", "Nothing"),
    ] {
        let names = text(entry, key)?;
        if !names.is_empty() {
            write!(options, "Opt({names:?}, Takes::{takes}, Does::{does}),")?;
        }
    }
    Ok(options)
}

fn verbs(table: &mut Table) -> Result<String> {
    let mut groups = String::new();
    for mut group in tables(table, "groups")? {
        let names = text(&mut group, "is")?;
        write!(groups, "({names:?}, &[{}]),", effects(&mut group)?)?;
        empty(&group)?;
    }
    for (key, does) in VERBS {
        let names = text(table, key)?;
        if !names.is_empty() {
            write!(groups, "({names:?}, &[{does}]),")?;
        }
    }
    let mut all = Vec::new();
    for key in ["alone", "other"] {
        let mut does = self::table(table, key)?;
        all.push(effects(&mut does)?);
        empty(&does)?;
    }
    if all[1].is_empty() {
        all[1] = r#"Does::Mutates("can write")"#.to_owned();
    }
    let (flags, values) = (text(table, "flags")?, text(table, "values")?);
    empty(table)?;
    let (alone, other) = (&all[0], &all[1]);
    Ok(format!(
        "Verbs {{ groups: &[{groups}], alone: &[{alone}], other: &[{other}], flags: {flags:?}, values: {values:?} }}"
    ))
}

fn effects(table: &mut Table) -> Result<String> {
    let mut all = Vec::new();
    for (key, effect) in EFFECTS {
        match table.remove(key) {
            Some(Value::Boolean(true)) if effect == "Looks" => all.push(format!("Does::{effect}")),
            Some(Value::String(why)) => all.push(format!("Does::{effect}({why:?})")),
            Some(_) => return Err(format!("{key} must be a string").into()),
            None => {}
        }
    }
    Ok(all.join(", "))
}

fn conditions(table: &mut Table) -> Result<String> {
    let mut all = Vec::new();
    for (key, condition) in CONDITIONS {
        match table.remove(key) {
            Some(Value::Boolean(true)) => all.push(format!("When::{condition}")),
            Some(Value::Integer(count)) => all.push(format!("When::{condition}({count})")),
            Some(Value::String(words)) => all.push(format!("When::{condition}({words:?})")),
            Some(_) => return Err(format!("{key} is not a valid condition").into()),
            None => {}
        }
    }
    if all.is_empty() { Err("a rule has no condition".into()) } else { Ok(all.join(", ")) }
}

fn split(list: &str, at: char) -> Vec<String> {
    list.split(at).map(|part| part.trim().to_owned()).collect()
}

fn empty(table: &Table) -> Result<()> {
    table.keys().next().map_or(Ok(()), |key| Err(format!("unknown key {key}").into()))
}

/// Removes a string from a table; empty if it is missing. Line breaks become blanks.
fn text(table: &mut Table, key: &str) -> Result<String> {
    match table.remove(key) {
        Some(Value::String(text)) => Ok(text.split_whitespace().collect::<Vec<_>>().join(" ")),
        Some(_) => Err(format!("{key} must be a string").into()),
        None => Ok(String::new()),
    }
}

fn flag(table: &mut Table, key: &str) -> Result<bool> {
    table
        .remove(key)
        .map_or(Ok(false), |value| value.as_bool().ok_or_else(|| format!("{key} must be a boolean").into()))
}

fn number(table: &mut Table, key: &str) -> Result<i64> {
    table
        .remove(key)
        .map_or(Ok(0), |value| value.as_integer().ok_or_else(|| format!("{key} must be a number").into()))
}

fn table(table: &mut Table, key: &str) -> Result<Table> {
    match table.remove(key) {
        Some(Value::Table(inner)) => Ok(inner),
        Some(_) => Err(format!("{key} must be a table").into()),
        None => Ok(Table::new()),
    }
}

fn tables(table: &mut Table, key: &str) -> Result<Vec<Table>> {
    let all = match table.remove(key) {
        Some(Value::Array(all)) => all,
        Some(_) => return Err(format!("{key} must be a list").into()),
        None => Vec::new(),
    };
    all.into_iter().map(|one| Table::try_from(one).map_err(Into::into)).collect()
}
