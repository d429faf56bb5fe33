import { chosenNames, readScalars } from '../../aggregate';
import { formatInteger } from '../../charts';
import type { ScalarsOptions } from '../../protocol/views.generated';
import type { IPointed } from '../../store/run-link';
import type { IRunSource } from '../../store/source';
import type { IMark } from '../shared/content';
import { scalarsWords } from '../shared/change-words';
import { type Control, selectControl } from '../shared/control';
import { transformControl } from '../shared/controls';
import type { ILine } from '../kits/lines/line';
import {
  LinesView,
  type IComparedLines,
  type ILineRun,
  type LineContent,
  type LinesLoaded
} from '../kits/lines/lines-view';
import type { ILineAsk } from '../kits/lines/shape-lines';
import type { ILinkedMarks } from '../shared/links';
import { emptyState, nothingYet, type IState } from '../shared/states';
import type { IViewEnvironment } from '../shared/view-model';
import type { Translate } from '../shared/translate';

/** The scalars of a page: all in whose names every word is found. */
export function foundNames(names: readonly string[], search: string): string[] {
  const words = search.toLowerCase().split(/\s+/);
  return names.filter(name => words.every(word => name.toLowerCase().includes(word)));
}

/** Choose between one picture and a page of small ones. */
export function kindControl(
  kind: 'lines' | 'page',
  choose: (options: { kind: 'lines' | 'page' }) => void,
  t: Translate
): Control {
  const words = { lines: t('lines'), page: t('small pictures') };
  return selectControl('kind', t('Draw'), kind, words, each => choose({ kind: each }));
}

/** Choose what the horizontal axis is, and the scale of the other one. */
export const axisControls = (
  { transform, x }: Pick<Required<ScalarsOptions>, 'transform' | 'x'>,
  choose: (options: Partial<ScalarsOptions>) => void,
  t: Translate
): Control[] => [
  selectControl('x', t('Over'), x, { step: t('steps'), time: t('time') }, each => choose({ x: each })),
  transformControl(t('Scale'), transform, each => choose({ transform: each }), t)
];

/** Named scalars over steps or time, one panel for each unit. */
export class ScalarLines extends LinesView<Required<ScalarsOptions>> {
  constructor(source: IRunSource, env: IViewEnvironment<ScalarsOptions>) {
    super(source, env, ['scalars']);
  }

  /** Whether its words begin with what departs most: where few of them are seen. */
  protected readonly leadsWithEvent: boolean = false;

  get subject(): string {
    return this.options.names?.join(', ') || this.t('Scalars');
  }

  override controls(): Control[] {
    const { options, t } = this;
    const chosen = options.names === null ? '' : options.names.join('\n');
    const loss = this._known.filter(name => name.includes('loss'));
    const choices = [
      { value: '', text: loss.length > 0 ? t('losses') : t('all') },
      ...this._known.map(name => ({ value: name, text: name })),
      { value: this._known.join('\n'), text: t('all') }
    ];
    if (!choices.some(choice => choice.value === chosen)) {
      choices.push({ value: chosen, text: options.names?.join(', ') ?? '' });
    }
    const [smoothing, ...runs] = this.lineControls();
    return [
      { kind: 'name', id: 'run', text: options.aliases[0] || this.source.name },
      kindControl(options.kind, change => this.choose(change), t),
      selectControl(
        'names',
        t('Scalars'),
        chosen,
        choices.filter((each, at) => choices.findIndex(other => other.value === each.value) === at),
        value => this.choose({ names: value === '' ? null : value.split('\n') })
      ),
      ...(smoothing ? [smoothing] : []),
      ...axisControls(options, change => this.choose(change), t),
      ...runs
    ];
  }

  override insight(): IMark | null {
    const [first] = this.picture.lines;
    const last = first?.x[first.x.length - 1];
    return last === undefined ? null : this.picture.markAt(last, first?.panel ?? 0);
  }

  override marksOf({ step }: IPointed): ILinkedMarks {
    return super.marksOf({ step, layer: null });
  }

  /** What stands where a scalar has no unit. */
  protected readonly unitless: string = this.t('no unit');

  protected async read(signal: AbortSignal): Promise<LinesLoaded> {
    const { options, t } = this;
    const { runs, x } = options;
    // Clocks of two runs never meet: over time, runs are compared since their beginnings.
    const align = options.align === 'step' && x === 'time' && runs.length > 0 ? 'time' : options.align;
    const { units } = await readScalars(this.source, { names: [] }, signal);
    this._known = Object.keys(units);
    const names =
      options.kind === 'page'
        ? foundNames(this._known, options.search)
        : chosenNames(this._known, options.names);
    if (names.length === 0) {
      return { state: this._empty() };
    }
    const read = (run: ILineRun, ask: ILineAsk): Promise<readonly ILine[]> =>
      this._linesOf(run, names, ask, align === 'step' && x === 'time', signal);
    const found = await this.compared(names.length, read, signal, align);
    if ('kind' in found) {
      return { state: found };
    }
    if (found.lines.length === 0) {
      return { state: this._empty() };
    }
    const texts = { colorTitle: t('Scalars'), quantity: '', align, over: x };
    return { content: this._words(this.takeByUnit(found, this.unitless, texts)) };
  }

  private async _linesOf(
    { source, run, clock, named }: ILineRun,
    names: readonly string[],
    { steps, points }: ILineAsk,
    onClock: boolean,
    signal: AbortSignal
  ): Promise<ILine[]> {
    const asked = {
      names,
      ...(steps ? { steps } : {}),
      ...(points === undefined ? {} : { points })
    };
    const { lines, thinned = 0 } = await readScalars(source, asked, signal);
    this._thinned = run === 0 ? thinned : this._thinned;
    return lines.map(({ name, unit, steps: step, times, values, starts, total }) => ({
      key: name,
      ...named(name, lines.length),
      run,
      layer: null,
      ...(unit ? { unit } : {}),
      step,
      x: onClock ? times.map(seconds => seconds * 1000) : step.map(clock),
      value: values,
      nonFinite: values.map(value => (Number.isFinite(value) ? 0 : 1)),
      starts: starts.map(at => step[at] ?? NaN),
      isThin: step.length < total,
      of: total
    }));
  }

  private _words(found: IComparedLines): LineContent {
    const { t, options } = this;
    const lines = found.shown.filter(line => !line.isFaint);
    const nonFinite = lines.reduce((sum, line) => sum + line.nonFinite.reduce((a, b) => a + b, 0), 0);
    const absent = (options.names ?? []).filter(name => !this._known.includes(name));
    return {
      title: this.stepsTitle([...new Set(lines.map(line => line.key))].join(', '), found),
      caption: [
        ...(absent.length > 0 ? [t('This run has no scalar named %1.', absent.join(t(' or ')))] : []),
        ...(nonFinite > 0
          ? [t('Values that are not finite: %1; marks along the top show where.', formatInteger(nonFinite))]
          : []),
        ...(this._thinned > 0
          ? [
              t(
                'Points between minima and maxima that were left out to stay within memory: %1. Where a tip says “measured last”, a later one may be among them.',
                formatInteger(this._thinned)
              )
            ]
          : []),
        ...this.lineWords(found)
      ],
      summary: scalarsWords(lines, t, this.leadsWithEvent)
    };
  }

  private _empty(): IState {
    const { t, options } = this;
    const { names } = options;
    if (this._known.length === 0) {
      return nothingYet(
        t('No scalar has arrived yet: the training loop reports them with the tracer.'),
        this.actions,
        t
      );
    }
    const absent = names?.filter(name => !this._known.includes(name)) ?? [];
    return absent.length > 0
      ? emptyState(t('This run has no scalar named %1.', absent.join(t(' or '))), t('Show the losses'), () =>
          this.choose({ names: null, steps: null })
        )
      : emptyState(t('No scalar falls into these steps.'), t('Show all steps'), () =>
          this.choose({ steps: null })
        );
  }

  private _known: readonly string[] = [];
  private _thinned = 0;
}
