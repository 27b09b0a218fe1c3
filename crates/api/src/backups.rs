//! What the admin listener asks for a backup, as a trait: the listeners do not know where the ledger is.
//!
//! Owns the request and the responses to its failures. Not here: the copying. Invariant: a backup that was begun is completed, whether or
//! not its requester still waits.

use std::{fmt, sync::Arc, time::Duration};

use axum::response::{IntoResponse as _, Response};
use futures::future::BoxFuture;
use http::StatusCode;

use placet_types::error::{ErrorCode, Refusal};

use crate::{answer, documents::BackupDocument, problem::Failure};

/// Makes backups of the ledger.
pub trait Backups: fmt::Debug + Send + Sync {
    /// Makes one.
    fn backup(&self) -> BoxFuture<'static, Result<BackupDocument, BackupError>>;
}

/// Why there is no backup.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BackupError {
    /// No folder for backups is configured.
    #[error("no folder for backups is configured: set `ledger.backups`")]
    NotConfigured,
    /// The ledger is not one that this process can copy.
    #[error("{0}")]
    NotHere(String),
    /// A backup is already being made.
    #[error("a backup is being made at this moment")]
    Busy,
    /// The last one was asked for a moment ago.
    #[error("a backup was asked for less than {} s ago (`ledger.backup_interval_s`)", interval.as_secs())]
    TooSoon {
        /// The minimum time between two of them.
        interval: Duration,
        /// How much of it is left.
        wait: Duration,
    },
    /// It could not be written.
    #[error("the backup could not be made: {0}")]
    Failed(String),
}

impl From<BackupError> for Failure {
    /// Anyone who reaches the admin listener operates the process, so the full reason is returned.
    fn from(error: BackupError) -> Self {
        let message = error.to_string();
        match error {
            BackupError::NotConfigured => Self::new(Refusal::new(ErrorCode::NotFound, message)),
            BackupError::NotHere(_) => Self::with_status(
                Refusal::new(ErrorCode::ValidationError, message),
                StatusCode::NOT_IMPLEMENTED,
            ),
            BackupError::Busy => Self::new(Refusal::new(ErrorCode::InProgress, message)),
            BackupError::TooSoon { wait, .. } => {
                let wait_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX).max(1);
                let refusal = Refusal::new(ErrorCode::RateLimited, message);
                Self::new(refusal.with_retry_after_ms(wait_ms))
            }
            BackupError::Failed(_) => {
                let refusal = Refusal::new(ErrorCode::LedgerUnavailable, message.clone());
                Self::new(refusal.with_detail(message))
            }
        }
    }
}

/// `POST /backups` of the admin listener.
pub(crate) async fn make(backups: Option<Arc<dyn Backups>>) -> Response {
    let Some(backups) = backups else {
        return Failure::from(BackupError::NotConfigured).into_response();
    };
    match tokio::spawn(backups.backup()).await {
        Ok(Ok(made)) => answer::json(&made),
        Ok(Err(error)) => Failure::from(error).into_response(),
        Err(_panicked) => Failure::internal("the task of a backup panicked").into_response(),
    }
}

#[cfg(test)]
mod tests {
    use http::StatusCode;

    use super::*;
    use crate::testing::Reply;

    const MINUTE: Duration = Duration::from_secs(60);

    #[derive(Debug)]
    struct Fake(Result<(), BackupError>);

    impl Backups for Fake {
        fn backup(&self) -> BoxFuture<'static, Result<BackupDocument, BackupError>> {
            let made = BackupDocument {
                folder: "backup-1".to_owned(),
                seq: 7,
                head: "00".to_owned(),
                bytes: 9,
            };
            let answer = self.0.clone().map(|()| made);
            Box::pin(async move { answer })
        }
    }

    async fn asked(backups: Option<Fake>) -> Reply {
        let backups = backups.map(|backups| -> Arc<dyn Backups> { Arc::new(backups) });
        Reply::of(make(backups).await).await
    }

    #[tokio::test]
    async fn a_backup_is_answered_with_what_is_in_it() {
        let reply = asked(Some(Fake(Ok(())))).await;
        assert_eq!((reply.status, &reply.json()["seq"]), (StatusCode::OK, &7.into()));
    }

    #[tokio::test]
    async fn each_reason_for_having_no_backup_has_its_status() {
        let here = "use `pg_basebackup`".to_owned();
        for (error, status) in [
            (BackupError::NotConfigured, 404),
            (BackupError::NotHere(here), 501),
            (BackupError::Busy, 409),
            (BackupError::TooSoon { interval: MINUTE, wait: MINUTE }, 429),
            (BackupError::Failed("the disk is full".to_owned()), 503),
        ] {
            let words = error.to_string();
            let reply = asked(Some(Fake(Err(error)))).await;
            assert_eq!(reply.status.as_u16(), status);
            assert_eq!(reply.json()["detail"], words.as_str());
        }
        assert_eq!(asked(None).await.code(), "NOT_FOUND");
    }

    #[test]
    fn failed_backup_gives_the_log_its_reason() {
        let failure = Failure::from(BackupError::Failed("the disk is full".to_owned()));
        assert!(
            format!("{failure:?}")
                .contains("detail: Some(\"the backup could not be made: the disk is full\")")
        );
    }
}
