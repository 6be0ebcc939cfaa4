-- One upload in each state that differs to this store; all of 100 octets, the n-th under an id of n's.
INSERT INTO upload (seq, id, prelude, total, dest, expires, state, payload, stored, stored_bytes, delivered, created, updated,
                    stored_at, received_at, finished_at, attempts, due, forget_at, reason_code, reason, answer) VALUES
    -- Receiving: octets 0 to 49 are here.
    (1, x'01010101010101010101010101010101', x'7072656c756465', 100, 'https://photos.example/hoop/post', 1001000, 0, 1,
     x'00000000000000000000000000000032', 50, x'', 999990, 999991, NULL, NULL, NULL, 0, NULL, 1605800, NULL, NULL, NULL),
    -- Stored, and due.
    (2, x'02020202020202020202020202020202', x'7072656c756465', 100, 'https://photos.example/hoop/post', 1001000, 1, 1,
     x'00000000000000000000000000000064', 100, x'', 999990, 999992, 999992, NULL, NULL, 0, 999992, 1605800, NULL, NULL, NULL),
    -- Delivering: half of it is there, and it is put off for a minute after the test's now.
    (3, x'03030303030303030303030303030303', x'7072656c756465', 100, 'https://photos.example/hoop/post', 1001000, 2, 1,
     x'00000000000000000000000000000064', 100, x'00000000000000000000000000000032', 999990, 999993, 999992, NULL, NULL, 3, 1000060,
     1605800, 'dest-unreachable', 'no route', NULL),
    -- Held: the service waits for a person, and is asked now and then.
    (4, x'04040404040404040404040404040404', x'7072656c756465', 100, 'https://photos.example/hoop/post', 1001000, 4, 0,
     x'00000000000000000000000000000064', 100, x'00000000000000000000000000000064', 999990, 999994, 999992, 999993, NULL, 1, 1000000,
     1605800, 'held-for-sign-in', 'sign in', NULL),
    -- Accepted, with its answer.
    (5, x'05050505050505050505050505050505', x'7072656c756465', 100, 'https://photos.example/hoop/post', 1001000, 5, 0,
     x'00000000000000000000000000000064', 100, x'00000000000000000000000000000064', 999990, 999995, 999992, 999993, 999995, 0, NULL,
     1605800, NULL, NULL, x'616e73776572');
UPDATE room SET kept = 250;
