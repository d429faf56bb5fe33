import { ArrowColumns } from '../protocol/arrow-columns';
import { badFrame } from '../protocol/frame';
import { gradientStage, numbersOf, streamName } from './moment-row';
import type { IMomentGroups, IMomentRows, MomentColumn, MomentKey, MomentStat } from './moment-source';
import { MOMENT_STATS } from '../protocol/moment-statistics';

/**
 * Rows as the server sent them.
 *
 * @throws ProtocolError `bad-frame`.
 */
export function rowsOf(bytes: Uint8Array): IMomentRows {
  const columns = new ArrowColumns(bytes);
  const { codes, values: names } = columns.words('name');
  const stages = columns.words('gradient_stage');
  const stageOf = stages.values.map(gradientStage);
  const whole = {
    nameId: () => codes,
    gradientStage: () => stages.codes.map(code => stageOf[code] ?? 0)
  };
  return {
    stat: statsOf(columns),
    names,
    ...numbersOf(
      name => (name in whole ? whole[name as keyof typeof whole]() : columns.whole(streamName(name))),
      name => columns.floats(streamName(name))
    )
  };
}

/**
 * Groups as the server sent them.
 *
 * @param by - The columns of a key.
 * @param groupsTotal - How many groups there were before the largest were chosen.
 * @param stepsTotal - How many steps there were before some were left out.
 * @throws ProtocolError `bad-frame`.
 */
export function groupsOf(
  bytes: Uint8Array,
  by: readonly MomentColumn[],
  groupsTotal: number,
  stepsTotal: number
): IMomentGroups {
  const columns = new ArrowColumns(bytes);
  const group = Uint32Array.from(columns.whole('group'));
  const keys: MomentKey[] = [];
  group.forEach((place, row) => {
    if (place === keys.length) {
      keys.push(by.map(column => columns.cell(column, row)));
    }
  });
  return {
    keys,
    group,
    step: columns.floats('step'),
    samples: columns.floats('samples'),
    value: columns.floats('value'),
    count: columns.floats('count'),
    nonFinite: columns.floats('nonfinite'),
    error: columns.floats('error'),
    scaled: Uint8Array.from(columns.floats('scaled')),
    groupsTotal,
    stepsTotal
  };
}

function statsOf(columns: ArrowColumns): MomentStat[] {
  const { codes, values } = columns.words('stat');
  const known = values.map(value => {
    const stat = MOMENT_STATS.find(one => one === value);
    if (stat === undefined) {
      throw badFrame(`The server sent rows of a statistic that is not known here: ${value}.`);
    }
    return stat;
  });
  const stats = new Array<MomentStat>(codes.length);
  for (let row = 0; row < codes.length; row += 1) {
    stats[row] = known[codes[row] as number] as MomentStat;
  }
  return stats;
}
