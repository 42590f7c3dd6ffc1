//! Command lines, parsed as `getopt_long` of the GNU C library does, since scripts rely on all of its forms: unique prefixes
//! of long options, `--name=value` and `--name value`, clusters of short options, attached values, and options after operands.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// An option of a command. Two options with the same key have the same meaning.
#[derive(Debug, Clone, Copy)]
pub struct Opt<Key> {
    /// The meaning of the option.
    pub key: Key,
    /// The long name, without the leading `--`; empty if the option has none.
    pub long: &'static str,
    /// The short name.
    pub short: Option<u8>,
    /// Whether the option takes a value.
    pub takes: Takes,
}

/// Whether an option takes a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Takes {
    /// The option takes no value.
    Nothing,
    /// The option requires a value, attached or as the next argument.
    Value,
    /// The option may have a value, which must be attached.
    Attached,
}

/// What an operand means for the options after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Options may follow operands.
    Permute,
    /// The first operand ends the options: what follows belongs to a script or a program.
    StopAtOperand,
}

/// A parsed command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parsed<Key> {
    /// The options in their order on the command line, each with its value.
    pub options: Vec<(Key, Option<OsString>)>,
    /// The other arguments.
    pub operands: Vec<OsString>,
}

/// Why a command line is wrong. The text is the one of `getopt_long`, without the name of the command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mistake {
    /// No option has this short name.
    UnknownShort(u8),
    /// No option has this long name. The text is the argument without `--`.
    UnknownLong(OsString),
    /// The long name is a prefix of several options.
    Ambiguous {
        /// The argument without `--`.
        given: OsString,
        /// The names that begin with the argument.
        names: Vec<&'static str>,
    },
    /// A short option lacks its value.
    ShortLacksValue(u8),
    /// A long option lacks its value.
    LongLacksValue(&'static str),
    /// A long option has a value and takes none.
    NeedlessValue(&'static str),
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownShort(name) => write!(f, "invalid option -- '{}'", char::from(*name)),
            Self::UnknownLong(given) => write!(f, "unrecognized option '--{}'", given.display()),
            Self::Ambiguous { given, names } => {
                write!(f, "option '--{}' is ambiguous; possibilities:", given.display())?;
                names.iter().try_for_each(|name| write!(f, " '--{name}'"))
            }
            Self::ShortLacksValue(name) => write!(f, "option requires an argument -- '{}'", char::from(*name)),
            Self::LongLacksValue(name) => write!(f, "option '--{name}' requires an argument"),
            Self::NeedlessValue(name) => write!(f, "option '--{name}' doesn't allow an argument"),
        }
    }
}

impl std::error::Error for Mistake {}

/// Parses the arguments of a command, without its name.
///
/// # Errors
/// At the first mistake.
pub fn parse<Key: Copy + PartialEq>(
    options: &[Opt<Key>],
    order: Order,
    arguments: impl IntoIterator<Item = OsString>,
) -> Result<Parsed<Key>, Mistake> {
    let mut parsed = Parsed { options: Vec::new(), operands: Vec::new() };
    let mut arguments = arguments.into_iter();
    while let Some(argument) = arguments.next() {
        match argument.as_bytes() {
            b"--" => break,
            [b'-', b'-', long @ ..] => parsed.options.push(parse_long(options, long, &mut arguments)?),
            [b'-', cluster @ ..] if !cluster.is_empty() => {
                parse_cluster(options, cluster, &mut arguments, &mut parsed.options)?;
            }
            _ => {
                parsed.operands.push(argument);
                if order == Order::StopAtOperand {
                    break;
                }
            }
        }
    }
    parsed.operands.extend(arguments);
    Ok(parsed)
}

/// Parses a long option, given without `--`.
fn parse_long<Key: Copy + PartialEq>(
    options: &[Opt<Key>],
    given: &[u8],
    rest: &mut impl Iterator<Item = OsString>,
) -> Result<(Key, Option<OsString>), Mistake> {
    let equals = given.iter().position(|byte| *byte == b'=');
    let (name, attached) = match equals {
        Some(at) => (&given[..at], Some(OsStr::from_bytes(&given[at + 1..]).to_owned())),
        None => (given, None),
    };
    let option = find_long(options, name, given)?;
    let value = match (option.takes, attached) {
        (Takes::Nothing, None) => None,
        (Takes::Nothing, Some(_)) => return Err(Mistake::NeedlessValue(option.long)),
        (Takes::Attached, attached) => attached,
        (Takes::Value, attached) => Some(attached.or_else(|| rest.next()).ok_or(Mistake::LongLacksValue(option.long))?),
    };
    Ok((option.key, value))
}

/// Finds the option of this name, or the only one whose name begins with it.
fn find_long<'a, Key: PartialEq>(options: &'a [Opt<Key>], name: &[u8], given: &[u8]) -> Result<&'a Opt<Key>, Mistake> {
    let with_prefix = || options.iter().filter(|it| !it.long.is_empty() && it.long.as_bytes().starts_with(name));
    if let Some(exact) = with_prefix().find(|it| it.long.len() == name.len()) {
        return Ok(exact);
    }
    let given = || OsStr::from_bytes(given).to_owned();
    let first = with_prefix().next().ok_or_else(|| Mistake::UnknownLong(given()))?;
    // Two names of one option are not ambiguous.
    let others = with_prefix().filter(|it| it.key != first.key || it.takes != first.takes);
    let names: Vec<_> = std::iter::once(first).chain(others).map(|it| it.long).collect();
    if names.len() == 1 { Ok(first) } else { Err(Mistake::Ambiguous { given: given(), names }) }
}

/// Parses short options that share an argument, given without `-`.
fn parse_cluster<Key: Copy>(
    options: &[Opt<Key>],
    mut cluster: &[u8],
    rest: &mut impl Iterator<Item = OsString>,
    found: &mut Vec<(Key, Option<OsString>)>,
) -> Result<(), Mistake> {
    while let [name, attached @ ..] = cluster {
        let option = options.iter().find(|it| it.short == Some(*name)).ok_or(Mistake::UnknownShort(*name))?;
        let attached_value = (!attached.is_empty()).then(|| OsString::from_vec(attached.to_vec()));
        let value = match option.takes {
            Takes::Nothing => {
                found.push((option.key, None));
                cluster = attached;
                continue;
            }
            Takes::Attached => attached_value,
            Takes::Value => Some(attached_value.or_else(|| rest.next()).ok_or(Mistake::ShortLacksValue(*name))?),
        };
        found.push((option.key, value));
        return Ok(());
    }
    Ok(())
}
