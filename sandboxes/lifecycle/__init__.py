"""Everything that a lease goes through. The API, the admin and the reaper call in here and nowhere deeper.

``transitions``  the database's half: every change of a lease's state, as one conditional UPDATE each
``hub``          the running half: one engine, the guests' connections and the tasks under way, on one event loop
``leases``       take, resume and end a lease
``work``         run commands in it, stop them, read and write its files
``reconcile``    make what runs and what the database says agree again
"""
