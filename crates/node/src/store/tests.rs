use super::*;

#[test]
fn migrations_are_applied_in_order() {
    const OLD: Kind = Kind { migrations: &["CREATE TABLE a (x INTEGER)"], ..NODE };
    const NEW: Kind = Kind {
        migrations: &["CREATE TABLE a (x INTEGER)", "ALTER TABLE a ADD COLUMN y DEFAULT 5"],
        ..NODE
    };
    const BROKEN: Kind =
        Kind { migrations: &["", "", "CREATE TABLE b (x INTEGER); nonsense"], ..NODE };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("node.db");
    let old = Database::open(&path, &OLD).unwrap();
    old.write::<_, StoreError>(|tx| Ok(tx.execute("INSERT INTO a VALUES (1)", [])?)).unwrap();
    drop(old);
    let new = Database::open(&path, &NEW).unwrap();
    let row = new.read(|c| c.query_row("SELECT x + y FROM a", [], |row| row.get::<_, i64>(0)));
    assert_eq!(row.unwrap(), 6);
    drop(new);
    assert!(matches!(Database::open(&path, &OLD), Err(StoreError::Newer { .. })));
    assert!(matches!(Database::open(&path, &BROKEN), Err(StoreError::Sql { .. })));
    let still = Database::open(&path, &NEW).unwrap();
    let tables = still.read(|c| {
        c.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get::<_, i64>(0))
    });
    assert_eq!(tables.unwrap(), 1, "a failed migration changes nothing");
}
