import { formatInteger } from '../../charts';
import type { IMomentGroups, MomentColumn, MomentKey } from '../../store/row-moments';
import type { IPointed } from '../../store/run-link';
import type { IMark, Loaded } from '../shared/content';
import type { Control } from '../shared/control';
import { compareLines, comparedTitle, missingWords, runWords } from '../kits/lines/compare';
import { allHidden, hiddenWords, shownLines } from '../kits/lines/legend';
import type { ILine } from '../kits/lines/line';
import type { ILinkedMarks } from '../shared/links';
import { nearestIndex } from '../shared/scale';
import { drawnValues } from './line';
import { linesAcross, onlyAt } from './across';
import { nonFiniteWords, omittedWords, optionWords, trustWords } from './captions';
import { markOf, OverPane } from './over-pane';
import type { MomentReader } from './reader';
import { keyWords, byWords, quantityWords } from './words';
import { capital } from '../shared/describe';

/** The layers of one step, of one or more runs. */
interface ILayers {
  /** Groups of the view's own run. */
  readonly base: IMomentGroups;
  readonly lines: readonly ILine[];
  /** What was read, in a comparison also of the run that others are compared with. */
  readonly read: readonly ILine[];
  /** The step of each other run; null where it has nothing to compare. */
  readonly steps: readonly (number | null)[];
}

/** Groups at one step over the layers, as lines or bars. */
export class LayersPane extends OverPane {
  override pointedBy(mark: IMark): IPointed {
    return { step: this._step, layer: (mark.x[0] + mark.x[1]) / 2 };
  }

  override marksOf({ layer }: IPointed): ILinkedMarks {
    return { marks: layer === null ? [] : [markOf(layer)] };
  }

  override get by(): readonly MomentColumn[] {
    return ['layer', ...super.by.filter(column => column !== 'layer')];
  }

  protected override placeWords(x: number): string {
    return this.t('layer %1', x);
  }

  protected async fill(reader: MomentReader, signal: AbortSignal): Promise<Loaded> {
    const { options, by, t } = this;
    const { wanted, step } = this.stepDrawn();
    if (step === undefined) {
      return { state: this.nothing() };
    }
    this._step = step;
    const read = await this._readLayers(reader, step, signal);
    const groups = read.base;
    const rest = by.slice(1);
    const { lines, left } = largest(read.lines, options.series);
    // Bars have no dashes that would tell runs apart: each of its own colour, and named in full.
    const isApart = options.marks === 'bars' && this.otherRuns.length > 0;
    this.all = isApart ? lines.map(apart) : lines;
    this.lines = shownLines(this.all, options.hidden);
    if (this.lines.length === 0 && lines.length > 0) {
      return { state: allHidden(hidden => this.choose({ hidden }), t) };
    }
    if (lines.length === 0) {
      const action = { label: t('Draw lines'), run: () => this.choose({ kind: 'lines' }) };
      const sentence =
        read.read.length > 0
          ? t('Nothing here can be compared.')
          : t('All tensors here are outside the layers.');
      return { state: { kind: 'empty', sentence, action } };
    }
    const unlayered = groups.keys.filter(([layer]) => layer === null).length;
    const title = comparedTitle(
      t(
        rest.length === 0 ? '%1 by layer, step %3' : '%1 by layer and %2, step %3',
        capital(quantityWords(options, t)),
        byWords(rest, t),
        formatInteger(step)
      ),
      options,
      this.otherRuns,
      t
    );
    const compares = this.otherRuns.length > 0 && options.compare !== 'overlay';
    return {
      content: {
        ...this.compose(
          {
            xTitle: t('layer'),
            colorTitle: capital(
              rest.length > 0 ? byWords(rest, t) : this.otherRuns.length > 0 ? t('run') : t('tensors')
            )
          },
          read.read
        ),
        title,
        caption: [
          ...this.nearWords(wanted, step),
          ...hiddenWords(this.all, options.hidden, t),
          ...(left > 0 ? [t('%1 series are left out: the smallest ones.', formatInteger(left))] : []),
          ...(unlayered > 0 ? [t('Tensors outside the layers are left out.')] : []),
          ...this._runWords(step, read.steps),
          ...omittedWords({ ...groups, groupsTotal: groups.keys.length }, '', t),
          ...optionWords({ ...options, smoothing: 0 }, this.index, t),
          ...nonFiniteWords(groups, t),
          ...(compares ? [] : trustWords(groups, { ...options, by: [...by] }, t))
        ],
        summary: this.summaryWords(),
        notes: await this.notes(reader, signal)
      }
    };
  }

  override controls(): Control[] {
    return this.stepControls();
  }

  /**
   * Read each run at the chosen step, other runs at the one of theirs that lies nearest, in steps or in
   * samples.
   */
  private async _readLayers(reader: MomentReader, step: number, signal: AbortSignal): Promise<ILayers> {
    const { by, options, otherRuns: others, source, t } = this;
    const question = { ...this.question(by), smoothing: 0 };
    const rest = by.slice(1);
    const words = (key: MomentKey): string => keyWords(key, rest, t);
    const across = async (from: MomentReader, run: number, at: number): Promise<[IMomentGroups, ILine[]]> => {
      const groups = await from.groups({ ...question, steps: [at, at] }, signal);
      const { id = '', name = '' } = [source, ...others][run] ?? {};
      const alone = others.length > 0 && rest.length === 0;
      const label = alone ? (): string => name : words;
      const named = alone || others.length === 0 ? label : (key: MomentKey) => `${name} · ${words(key)}`;
      const drawn = { ...groups, value: drawnValues(groups, options) };
      return [groups, linesAcross(drawn, run, named, label, alone ? id : undefined)];
    };
    const [base, own] = await across(reader, 0, step);
    const read = await Promise.all(
      others.map(async ({ reader: other }, at) => {
        const near = other && (await this._stepOf(other, step, signal));
        return other && near !== null
          ? { step: near, lines: (await across(other, at + 1, near))[1] }
          : { step: null, lines: [] };
      })
    );
    const theirs = read.flatMap(({ lines }) => lines);
    const bases = new Map(own.map(line => [line.key, line]));
    const lines =
      options.compare === 'overlay' || others.length === 0
        ? [...own, ...theirs]
        : compareLines(
            own,
            // Between two layers there is nothing that could be compared.
            theirs.flatMap(line => onlyAt(line, bases.get(line.key)?.x ?? [])),
            options.compare
          ).lines;
    return {
      base,
      lines,
      read: [...own, ...theirs],
      steps: read.map((each, run) =>
        lines.some(line => line.run === run + 1) && each.lines.length > 0 ? each.step : null
      )
    };
  }

  /** The step of another run that lies nearest to the drawn one; null where it has none. */
  private async _stepOf(reader: MomentReader, step: number, signal: AbortSignal): Promise<number | null> {
    const total = await reader.groups(this.everything, signal);
    const samples = this.total?.samples[nearestIndex(this.steps, step)] ?? -1;
    const onSamples = this.options.x === 'samples' && samples >= 0 && total.samples.every(each => each >= 0);
    const index = onSamples ? nearestIndex(total.samples, samples) : nearestIndex(total.step, step);
    return total.step[index] ?? null;
  }

  /** Say which runs are drawn, how, and at which step where that is another one. */
  private _runWords(step: number, steps: readonly (number | null)[]): string[] {
    const { options, otherRuns, t } = this;
    const there = otherRuns.filter((_, at) => steps[at] !== null);
    const elsewhere = otherRuns.flatMap(({ name }, at) => {
      const own = steps[at] ?? step;
      return own === step ? [] : [t('%1 is at step %2, the nearest one.', name, formatInteger(own))];
    });
    const bars = options.marks === 'bars';
    const without = otherRuns.filter((_, at) => steps[at] === null);
    return [
      ...(bars && options.compare === 'overlay'
        ? []
        : runWords(options, this.source.name, otherRuns, there, t)),
      ...elsewhere,
      ...missingWords(without, t)
    ];
  }

  private _step: number | null = null;
}

/** A line as one of its own among those of other runs. */
const apart = (line: ILine): ILine => ({
  ...line,
  key: `${line.run} ${line.key}`,
  label: line.name
});

/** The groups with the largest magnitudes, of all runs, in their order; and how many groups are left out. */
function largest(lines: readonly ILine[], most: number): { lines: readonly ILine[]; left: number } {
  const sizes = new Map<string, number>();
  const idOf = (line: ILine): string => line.key;
  for (const line of lines) {
    const before = sizes.get(idOf(line)) ?? -1;
    const size = line.value.reduce(
      (best, each) => (Number.isNaN(each) ? best : Math.max(best, Math.abs(each))),
      before
    );
    sizes.set(idOf(line), size);
  }
  const kept = new Set(
    [...sizes]
      .sort(([, a], [, b]) => b - a)
      .slice(0, most)
      .map(([id]) => id)
  );
  return { lines: lines.filter(line => kept.has(idOf(line))), left: sizes.size - kept.size };
}
