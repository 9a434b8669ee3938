-- Keeps a producer whose tenants are kept apart away from the changelog; part of grants.sql.
-- {producer} is the role, quoted
-- Changes nothing where it was run before.

-- The changelog and its settings are left out, because their entries have no tenant: who reads them sees those of all.
revoke all on {settings}, {changelog}, {cursors} from {producer};

-- For the doctor to prove that the producer is confined, by trying as the producer what must fail, the operator must be able to become it.
-- Where row_level_security is "require" the doctor fails without. Who may grant roles runs it:
-- grant {producer} to {operator};
