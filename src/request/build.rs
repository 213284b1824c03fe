//! Compiles the files in `presets` into static tables, so that no run has to parse them.
//!
//! An unknown key is an error: a misspelt key would otherwise be ignored.

use std::error::Error;
use std::fmt::Write;
use std::path::Path;

use toml::{Table, Value};

/// In the order of `Preset`.
const PRESETS: [&str; 5] = ["node", "python", "rust", "go", "java"];

type Result<T> = std::result::Result<T, Box<dyn Error>>;

fn main() -> Result<()> {
    println!("cargo::rerun-if-changed=presets");
    println!("cargo::rerun-if-changed=build.rs");
    let mut out = format!("static PRESETS: [PresetData; {}] = [\n", PRESETS.len());
    for name in PRESETS {
        let file = format!("presets/{name}.toml");
        let preset = preset(&file).map_err(|error| format!("{file}: {error}"))?;
        writeln!(out, "{preset},")?;
    }
    let mut ci = read("presets/ci.toml")?;
    writeln!(
        out,
        "];\n/// Variables that are passed if `CI=true`.\npub static CI_VARIABLES: &[&str] = &{:?};",
        list(&mut ci, "variables")?
    )?;
    empty(&ci)?;
    writeln!(
        out,
        "/// The programs of each entry, and the variables that they read.\n\
         static READERS: &[(&[&str], &[&str])] = &[{}];",
        readers("presets/reads.toml").map_err(|error| format!("presets/reads.toml: {error}"))?
    )?;
    std::fs::write(Path::new(&std::env::var("OUT_DIR")?).join("presets.rs"), out)?;
    Ok(())
}

fn read(file: &str) -> Result<Table> {
    Ok(std::fs::read_to_string(file)?.parse()?)
}

fn preset(file: &str) -> Result<String> {
    let mut data = read(file)?;
    let (caches, hosts, pass) =
        (list(&mut data, "caches")?, list(&mut data, "hosts")?, list(&mut data, "pass")?);
    let (set, set_with_list) = (pairs(&mut data, "set")?, pairs(&mut data, "set_with_list")?);
    empty(&data)?;
    Ok(format!(
        "PresetData {{ caches: &{caches:?}, hosts: &{hosts:?}, pass: &{pass:?}, set: &{set:?}, \
         set_with_list: &{set_with_list:?} }}"
    ))
}

fn readers(file: &str) -> Result<String> {
    let mut data = read(file)?;
    let Some(Value::Array(entries)) = data.remove("reader") else { return Err("no [[reader]]".into()) };
    empty(&data)?;
    let mut out = String::new();
    for entry in entries {
        let Value::Table(mut entry) = entry else { return Err("reader: not a table".into()) };
        let (programs, variables) = (list(&mut entry, "programs")?, list(&mut entry, "variables")?);
        empty(&entry)?;
        write!(out, "(&{programs:?}, &{variables:?}), ")?;
    }
    Ok(out)
}

fn list(data: &mut Table, key: &str) -> Result<Vec<String>> {
    let Some(Value::Array(items)) = data.remove(key) else { return Err(format!("{key}: not a list").into()) };
    let text = |item: &Value| {
        item.as_str().map(str::to_owned).ok_or_else(|| format!("{key}: an item is not a string").into())
    };
    items.iter().map(text).collect()
}

fn pairs(data: &mut Table, key: &str) -> Result<Vec<(String, String)>> {
    let pairs = match data.remove(key) {
        None => return Ok(Vec::new()),
        Some(Value::Table(pairs)) => pairs,
        Some(_) => return Err(format!("{key}: not a table").into()),
    };
    let text = |(name, value): (String, Value)| {
        let value = value.as_str().ok_or_else(|| format!("{name}: not a string"))?.to_owned();
        Ok((name, value))
    };
    pairs.into_iter().map(text).collect()
}

fn empty(data: &Table) -> Result<()> {
    data.keys().next().map_or(Ok(()), |key| Err(format!("unknown key {key}").into()))
}
