-- People with type 2 diabetes: one row for each, with the newest value of each measurement until the end of 2024.
-- Runs on PostgreSQL and SQLite; concept ids are those of the OMOP vocabulary.
WITH cohort AS (
    SELECT person_id, MIN(condition_start_date) AS since
    FROM condition_occurrence
    WHERE condition_concept_id = 201826 -- type 2 diabetes mellitus
      AND condition_start_date <= '2024-12-31'
    GROUP BY person_id
),
newest AS (
    SELECT person_id, measurement_concept_id, value_as_number,
           ROW_NUMBER() OVER (
               PARTITION BY person_id, measurement_concept_id
               ORDER BY measurement_date DESC, measurement_id DESC
           ) AS place
    FROM measurement
    WHERE value_as_number IS NOT NULL
      AND measurement_date <= '2024-12-31'
      AND (
          (measurement_concept_id = 3004410 AND unit_concept_id = 8554) -- HbA1c in %
          OR (measurement_concept_id = 3038553 AND unit_concept_id = 9531) -- body mass index in kg/m2
          OR (measurement_concept_id = 3004249 AND unit_concept_id = 8876) -- systolic blood pressure in mm Hg
      )
)
SELECT p.person_id AS patient,
       p.birth_datetime AS born,
       CASE p.gender_concept_id WHEN 8532 THEN 'f' WHEN 8507 THEN 'm' END AS sex,
       c.since AS diagnosed,
       MAX(CASE WHEN n.measurement_concept_id = 3004410 THEN n.value_as_number END) AS hba1c,
       MAX(CASE WHEN n.measurement_concept_id = 3038553 THEN n.value_as_number END) AS bmi,
       MAX(CASE WHEN n.measurement_concept_id = 3004249 THEN n.value_as_number END) AS systolic
FROM cohort AS c
JOIN person AS p ON p.person_id = c.person_id
LEFT JOIN newest AS n ON n.person_id = c.person_id AND n.place = 1
GROUP BY p.person_id, p.birth_datetime, p.gender_concept_id, c.since
ORDER BY p.person_id
