/** @jest-environment ./jest.environment.node.js */
import GOLDEN from '../../../../../protocol/fixtures/projection.json';
import { featuresOf, rotated, rotateOnto, type IVectors } from '../features';
import { leadingEigenvectors, principalComponents, symmetricEigen } from '../principal-components';
import { SeededRandom } from '../../../../protocol/seeded-random';

const DIGITS = 4;

/** Points of rows. */
function pointsOf(rows: readonly (readonly (number | string)[])[]): IVectors {
  const number = (value: number | string): number =>
    value === 'inf' ? Infinity : value === '-inf' ? -Infinity : Number(value);
  return {
    rows: rows.length,
    columns: rows[0]?.length ?? 0,
    values: Float32Array.from(rows.flatMap(row => row.map(number)))
  };
}

function expectClose(values: ArrayLike<number>, expected: readonly number[]): void {
  expect(values.length).toBe(expected.length);
  const size = Math.max(...expected.map(Math.abs));
  expected.forEach((value, at) => expect((values[at] as number) / size).toBeCloseTo(value / size, DIGITS));
}

/** Points that vary most along the first of some random directions. */
function scattered(rows: number, columns: number, noise: number): IVectors {
  const random = new SeededRandom(7);
  const mixing = Array.from({ length: 6 * columns }, () => random.centred());
  const values = new Float32Array(rows * columns);
  for (let row = 0; row < rows; row += 1) {
    const along = Array.from({ length: 6 }, (_, at) => random.centred() * 0.6 ** at);
    for (let column = 0; column < columns; column += 1) {
      const sum = along.reduce((all, part, at) => all + part * (mixing[at * columns + column] as number), 0);
      values[row * columns + column] = sum + noise * random.centred();
    }
  }
  return { rows, columns, values };
}

describe.each(GOLDEN.components)('principal components of the points “$name”', golden => {
  it.each([false, true])('are what numpy finds by its SVD, standardised: %s', standardise => {
    const expected = standardise ? golden.standardised : golden.plain;
    const found = principalComponents(pointsOf(golden.points), 3, standardise);
    expect([...found.features.kept]).toEqual(expected.kept);
    expect(found.features.constant).toBe(expected.constant);
    expectClose(found.ratios, expected.ratios);
    expectClose(found.scores, expected.scores.flat());
    expectClose(found.directions, expected.directions.flat());
    expect(found.residual).toBeLessThanOrEqual(1e-6);
  });
});

describe('principal components', () => {
  it('explain all of the variance together', () => {
    const { ratios } = principalComponents(scattered(50, 8, 0.1), 8, false);
    expect(ratios.reduce((sum, ratio) => sum + ratio, 0)).toBeCloseTo(1, 6);
    expect([...ratios]).toEqual([...ratios].sort((a, b) => b - a));
  });

  it('are found where there are more features than the search holds directions, and where there are more features than points', () => {
    for (const [rows, columns] of [
      [400, 300],
      [20, 500]
    ] as const) {
      const { directions, features, residual, ratios } = principalComponents(
        scattered(rows, columns, 0.05),
        2,
        false
      );
      expect(residual).toBeLessThanOrEqual(1e-6);
      // The variance along a component is its share of the whole.
      let sum = 0;
      for (let row = 0; row < rows; row += 1) {
        const score = directions
          .subarray(0, columns)
          .reduce((all, part, column) => all + part * (features.values[row * columns + column] as number), 0);
        sum += score * score;
      }
      expect(sum / (rows - 1) / features.variance).toBeCloseTo(ratios[0] as number, 5);
    }
  });

  it('are none where points do not differ, and 0 beyond the rank', () => {
    const same = pointsOf(Array.from({ length: 5 }, () => [3, -1, 0.1]));
    expect(principalComponents(same, 2, true)).toMatchObject({
      ratios: Float64Array.of(0, 0),
      scores: new Float64Array(10),
      features: { constant: 3, variance: 0 }
    });
    const line = principalComponents(pointsOf([1, 2, 4, 8].map(x => [x, 2 * x, -x])), 2, false);
    expect(line.ratios[0]).toBeCloseTo(1, 6);
    expect(line.ratios[1]).toBeCloseTo(0, 6);
    expect(principalComponents(pointsOf([[1, 2]]), 2, false).ratios).toEqual(Float64Array.of(0, 0));
    expect(principalComponents(pointsOf([]), 2, false).features.rows).toBe(0);
  });

  it('take a feature that varies by rounding alone for a constant one', () => {
    const rows = Array.from({ length: 10 }, (_, at) => [at, 1e6 + 1e-9 * at]);
    expect(featuresOf(pointsOf(rows), true).constant).toBe(1);
  });
});

it('finds all eigenvalues of a small matrix, and the greatest of a large one', () => {
  const { values, vectors } = symmetricEigen(Float64Array.of(2, 1, 0, 1, 2, 0, 0, 0, 5), 3);
  expectClose(values, [5, 3, 1]);
  expectClose(vectors.map(Math.abs), [0, 0, 1, Math.SQRT1_2, Math.SQRT1_2, 0, Math.SQRT1_2, Math.SQRT1_2, 0]);
  // Close together at the top: the search begins anew from its best directions.
  const size = 400;
  const found = leadingEigenvectors(
    (block, into) => into.set(block.map((value, at) => value * (1 - Math.floor(at / 4) / 4000))),
    size,
    3
  );
  expectClose(found.values, [1, 0.99975, 0.9995]);
  expect(found.residual).toBeLessThanOrEqual(1e-6);
});

describe.each(GOLDEN.turns)('the turn of a layout onto one that is “$name”', golden => {
  const flat = (rows: readonly (readonly number[])[]): Float64Array => Float64Array.from(rows.flat());

  it('is the orthogonal one that numpy finds', () => {
    const turn = rotateOnto(flat(golden.points), flat(golden.onto));
    expectClose(turn.matrix, golden.matrix.flat());
    expect(turn.mirrored).toBe(golden.mirrored);
    expect(turn.residual).toBeCloseTo(golden.residual, DIGITS);
  });

  it('leaves points out that one of the layouts lacks', () => {
    const [points, onto] = [flat(golden.points), flat(golden.onto)];
    const more = rotateOnto(
      Float64Array.of(...points, NaN, NaN, 9, 9),
      Float64Array.of(...onto, 1, 1, NaN, NaN)
    );
    expect(more).toEqual(rotateOnto(points, onto));
  });
});

it('turns points as it says', () => {
  const points = Float64Array.of(1, 0, 0, 1, -1, 0.5);
  const onto = Float64Array.of(0, 1, -1, 0, -0.5, -1);
  const turn = rotateOnto(points, onto);
  expect(turn.degrees).toBeCloseTo(90, 10);
  expectClose(rotated(points, turn), [...onto]);
  expect(rotateOnto(points, new Float64Array(6))).toMatchObject({ degrees: 0, residual: 0 });
});
