//! The tables that count, newest first.
//!
//! Owns look-ups through all of them, and which of them are best made into one. Not here: what lies above them in memory.
//! Invariants: a set is never changed, only replaced; the newest form of a key counts; with tables that double in size the
//! number of tables grows with the logarithm of the entries, and so does the work of merging.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::bloom::Bloom;
use super::cursor::{Cursor, Merged, Source};
use super::table::{Table, TableName, name_of, number_of, path_of as table_path, probe_of};
use super::{TableError, TableWriter};
use crate::journal::medium::Medium;

/// What becomes of the marks of keys that are gone, where nothing is left that they hide.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Marks {
    /// They are dropped.
    Drop,
    /// They stay: that a key was there is worth knowing.
    Keep,
}

/// Tables, newest first; cheap to clone.
#[derive(Debug, Clone, Default)]
pub(crate) struct TableSet(Arc<Tables>);

#[derive(Debug, Default)]
struct Tables {
    /// The filter of each, side by side: a new key is looked for in all of them, and each further place in memory costs.
    filters: Vec<Bloom>,
    tables: Vec<Arc<Table>>,
}

impl TableSet {
    /// Opens the tables of these names.
    pub(crate) fn open(
        medium: &Arc<dyn Medium>,
        directory: &Path,
        names: &[TableName],
    ) -> Result<Self, TableError> {
        let tables = names.iter().map(|name| Table::open(medium, directory, *name).map(Arc::new));
        Ok(Self::of(tables.collect::<Result<_, _>>()?))
    }

    /// Opens all tables that are in a folder, for whoever has lost what names them; answers the files of those that are not sound, too.
    /// A table is made of what stands in older ones and of what is new, so those of higher numbers are newer.
    ///
    /// # Errors
    /// What the operating system answers: one that cannot be opened now may be sound.
    pub(crate) fn open_all(
        medium: &Arc<dyn Medium>,
        directory: &Path,
    ) -> Result<(Self, Vec<PathBuf>), TableError> {
        let names = medium.list(directory).map_err(TableError::io("list the folder", directory))?;
        let mut numbers: Vec<u64> = names.iter().filter_map(|name| number_of(name)).collect();
        numbers.sort_unstable_by(|a, b| b.cmp(a));
        let (mut tables, mut damaged) = (Vec::new(), Vec::new());
        for number in numbers {
            let opened = name_of(medium, directory, number)
                .and_then(|name| Table::open(medium, directory, name));
            match opened {
                Ok(table) => tables.push(Arc::new(table)),
                Err(TableError::Damaged { path, .. }) => damaged.push(path),
                Err(error @ (TableError::Io { .. } | TableError::Source(_))) => return Err(error),
            }
        }
        Ok((Self::of(tables), damaged))
    }

    /// Opens those of the tables of these names that are there and sound as far as opening tells; answers the others with why not.
    ///
    /// # Errors
    /// What the operating system answers, but that a file is not there: one that cannot be opened now may be sound.
    pub(crate) fn open_sound(
        medium: &Arc<dyn Medium>,
        directory: &Path,
        names: &[TableName],
    ) -> Result<(Self, Vec<(TableName, TableError)>), TableError> {
        let (mut tables, mut damaged) = (Vec::new(), Vec::new());
        for name in names {
            match Table::open(medium, directory, *name) {
                Ok(table) => tables.push(Arc::new(table)),
                Err(TableError::Io { source, .. }) if source.kind() != io::ErrorKind::NotFound => {
                    return Err(TableError::Io {
                        what: "open",
                        path: table_path(directory, name.number),
                        source,
                    });
                }
                Err(error) => damaged.push((*name, error)),
            }
        }
        Ok((Self::of(tables), damaged))
    }

    fn of(tables: Vec<Arc<Table>>) -> Self {
        let filters = tables.iter().map(|table| table.filter().clone()).collect();
        Self(Arc::new(Tables { filters, tables }))
    }

    /// The names of the tables, newest first.
    pub(crate) fn names(&self) -> Vec<TableName> {
        self.tables().iter().map(|table| table.name()).collect()
    }

    /// The tables, newest first.
    pub(crate) fn tables(&self) -> &[Arc<Table>] {
        &self.0.tables
    }

    /// The newest value of a key for which the filters may be asked; an empty one: it is gone.
    pub(crate) fn get_filtered(&self, key: &[u8]) -> Result<Option<Vec<u8>>, TableError> {
        let probe = probe_of(key);
        let pairs = self.0.filters.iter().zip(&self.0.tables);
        let mut possible =
            pairs.filter(|(filter, _)| filter.may_contain(&probe)).map(|(_, table)| table);
        possible.find_map(|table| table.get(key).transpose()).transpose()
    }

    /// The newest value of any key; an empty one: it is gone.
    pub(crate) fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, TableError> {
        self.tables().iter().find_map(|table| table.get(key).transpose()).transpose()
    }

    /// A cursor for each table, newest first, from a key on.
    pub(crate) fn cursors(&self, from: &[u8]) -> Vec<Source> {
        let cursor =
            |table: &Arc<Table>| -> Source { Box::new(Cursor::new(Arc::clone(table), from)) };
        self.tables().iter().map(cursor).collect()
    }

    /// The set with a newer table on top.
    pub(crate) fn with(&self, newest: Table) -> Self {
        let mut tables = vec![Arc::new(newest)];
        tables.extend(self.tables().iter().map(Arc::clone));
        Self::of(tables)
    }

    /// The set with one table in the place of the newest `count`.
    pub(crate) fn replaced(&self, count: usize, merged: Table) -> Self {
        let mut tables = vec![Arc::new(merged)];
        tables.extend(self.tables().iter().skip(count).map(Arc::clone));
        Self::of(tables)
    }

    /// How many of the newest tables should become one; `None`: they are well as they are.
    pub(crate) fn due_for_merge(&self) -> Option<usize> {
        let (mut newer, mut due) = (0_u64, None);
        for (at, table) in self.tables().iter().enumerate() {
            let entries = table.name().entries;
            if at > 0 && entries <= newer {
                due = Some(at.saturating_add(1));
            }
            newer = newer.saturating_add(entries);
        }
        due
    }

    /// The newest `count` tables, read as one.
    pub(crate) fn newest(&self, count: usize) -> Merged {
        let newest = self.tables().iter().take(count).map(Arc::clone).collect();
        Merged::new(Self::of(newest).cursors(&[]))
    }

    /// Writes the newest `count` tables as one. Marks of what is gone are left out where no older table remains, but if asked for.
    pub(crate) fn merge(
        &self,
        count: usize,
        mut writer: TableWriter,
        (filtered, marks): (impl Fn(&[u8]) -> bool, Marks),
    ) -> Result<Table, TableError> {
        let is_whole = count >= self.tables().len() && marks == Marks::Drop;
        for pair in self.newest(count) {
            let (key, value) = pair?;
            if !is_whole || !value.is_empty() {
                writer.put(&key, &value, filtered(&key))?;
            }
        }
        writer.finish()
    }
}
