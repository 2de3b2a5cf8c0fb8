use serde::Deserialize;

use crate::MAX_PATTERNS;
use crate::condition::{Conditions, Scalar};
use crate::error::Error;
use crate::metadata::{Field, Metadata};
use crate::pattern::{Pattern, Top, TopNeed};
use crate::plan::{Builder, Goal, Plan};
use crate::scan::scan;
use crate::state::State;

/// What becomes of a record whose body is asked for as JSON and is none, if nothing else decides.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnInvalidJson {
    /// It is handed over.
    Pass,
    /// It is filtered out, as one that does not match. So does Lambda.
    #[default]
    Drop,
    /// It fails.
    Fail,
}

/// Which records are handed over. Made once; `Sync`, so that one serves all shards.
#[derive(Debug, Clone)]
pub struct Filter {
    patterns: Vec<Needs>,
    plan: Plan,
    on_invalid_json: OnInvalidJson,
}

/// How a record stands to a filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// At least one pattern matches.
    Matched,
    /// No pattern matches.
    NotMatched,
    /// A pattern that may match asks for fields of the body, which is not JSON, and no other one matches.
    InvalidJson,
}

/// What is to be done with a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Action {
    /// It is handed over.
    Deliver,
    /// It is done, without being handed over.
    Drop,
    /// It has failed: [`Filter::invalid_json`] has the reason.
    Fail,
}

/// What must hold of a record, all of it.
#[derive(Debug, Clone)]
struct Needs(Vec<Need>);

#[derive(Debug, Clone)]
enum Need {
    Metadata(Field, Conditions),
    Text(Conditions),
    /// The slot of a goal of the plan.
    Data(usize),
    Or(Vec<Needs>),
}

/// What is known of a record.
struct Known<'a> {
    metadata: &'a Metadata<'a>,
    body: &'a [u8],
    data: Data<'a>,
}

/// What is known of its body as JSON.
#[derive(Clone, Copy)]
enum Data<'a> {
    /// Nothing yet: every goal is taken to be met, or not to be.
    Taken(bool),
    States(&'a [State]),
}

// === impl OnInvalidJson ===

impl OnInvalidJson {
    /// The word in the configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Drop => "drop",
            Self::Fail => "fail",
        }
    }
}

// === impl Filter ===

impl Filter {
    /// A filter that records pass if one of the patterns, 1 to [`MAX_PATTERNS`], matches.
    ///
    /// # Errors
    ///
    /// There are no patterns, or too many.
    pub fn new(patterns: Vec<Pattern>, on_invalid_json: OnInvalidJson) -> Result<Self, Error> {
        match patterns.len() {
            0 => return Err(Error::whole("a filter without patterns would let nothing pass: name at least one")),
            1..=MAX_PATTERNS => {}
            count => return Err(Error::whole(format!("{count} patterns are too many: {MAX_PATTERNS} are allowed"))),
        }
        let mut builder = Builder::new();
        let drafts: Vec<Draft> = patterns.into_iter().map(|pattern| Draft::new(pattern.top, &mut builder)).collect();
        let (plan, slot) = builder.finish();
        let patterns = drafts.into_iter().map(|draft| draft.resolve(&slot)).collect();
        Ok(Self { patterns, plan, on_invalid_json })
    }

    /// How a record stands to the filter. Never panics, whatever the record is.
    ///
    /// The body is read only if it decides, and then once for all patterns.
    pub fn decide(&self, metadata: &Metadata<'_>, body: &[u8]) -> Verdict {
        if self.holds(metadata, body, Data::Taken(false)) {
            return Verdict::Matched;
        }
        if self.plan.is_empty() || !self.holds(metadata, body, Data::Taken(true)) {
            return Verdict::NotMatched;
        }
        // The whole text, because fields that no pattern names are passed over without a look at their letters.
        let Some(states) = str::from_utf8(body).ok().and_then(|text| scan(&self.plan, text).ok()) else {
            return Verdict::InvalidJson;
        };
        if self.holds(metadata, body, Data::States(&states)) { Verdict::Matched } else { Verdict::NotMatched }
    }

    /// What the filter does with a record of this verdict.
    pub fn action(&self, verdict: Verdict) -> Action {
        match (verdict, self.on_invalid_json) {
            (Verdict::Matched, _) | (Verdict::InvalidJson, OnInvalidJson::Pass) => Action::Deliver,
            (Verdict::NotMatched, _) | (Verdict::InvalidJson, OnInvalidJson::Drop) => Action::Drop,
            (Verdict::InvalidJson, OnInvalidJson::Fail) => Action::Fail,
        }
    }

    /// Why a body is not the JSON that the filter asks for, in one sentence that shows nothing of it; `None` if it is.
    /// Reads it once more, so for records of [`Verdict::InvalidJson`] only.
    pub fn invalid_json(&self, body: &[u8]) -> Option<String> {
        if self.plan.is_empty() {
            return None;
        }
        let error = match str::from_utf8(body) {
            Ok(text) => scan(&self.plan, text).err()?.to_string(),
            Err(error) => format!("byte {} is not UTF-8", error.valid_up_to()),
        };
        Some(format!("the filter asks for fields of the data, which is not JSON: {error}"))
    }

    /// What becomes of a record of [`Verdict::InvalidJson`].
    pub fn on_invalid_json(&self) -> OnInvalidJson {
        self.on_invalid_json
    }

    fn holds(&self, metadata: &Metadata<'_>, body: &[u8], data: Data<'_>) -> bool {
        let known = Known { metadata, body, data };
        self.patterns.iter().any(|needs| needs.hold(&known))
    }
}

// === impl Needs ===

impl Needs {
    fn hold(&self, known: &Known<'_>) -> bool {
        self.0.iter().all(|need| need.holds(known))
    }
}

// === impl Need ===

impl Need {
    fn holds(&self, known: &Known<'_>) -> bool {
        let state = match self {
            Self::Or(branches) => return branches.iter().any(|needs| needs.hold(known)),
            Self::Data(slot) => match known.data {
                Data::Taken(taken) => return taken,
                Data::States(states) => states[*slot],
            },
            Self::Text(conditions) => conditions.match_value(&Scalar::Text(known.body)),
            Self::Metadata(field, conditions) => match field.of(known.metadata) {
                Some(value) => conditions.match_value(&value),
                None => conditions.match_absence(),
            },
        };
        state != State::Fails
    }
}

/// [`Needs`] before its goals have slots.
struct Draft(Vec<DraftNeed>);

enum DraftNeed {
    Data(Goal),
    Or(Vec<Draft>),
    Ready(Need),
}

// === impl Draft ===

impl Draft {
    fn new(top: Top, builder: &mut Builder) -> Self {
        let need = |need| match need {
            TopNeed::Metadata(field, conditions) => DraftNeed::Ready(Need::Metadata(field, conditions)),
            TopNeed::Text(conditions) => DraftNeed::Ready(Need::Text(conditions)),
            TopNeed::Data(fields) => DraftNeed::Data(builder.add(fields)),
            TopNeed::Or(branches) => {
                DraftNeed::Or(branches.into_iter().map(|branch| Self::new(branch, builder)).collect())
            }
        };
        Self(top.0.into_iter().map(need).collect())
    }

    fn resolve(self, slot: &impl Fn(Goal) -> usize) -> Needs {
        let need = |need| match need {
            DraftNeed::Ready(need) => need,
            DraftNeed::Data(goal) => Need::Data(slot(goal)),
            DraftNeed::Or(branches) => Need::Or(branches.into_iter().map(|branch| branch.resolve(slot)).collect()),
        };
        Needs(self.0.into_iter().map(need).collect())
    }
}
