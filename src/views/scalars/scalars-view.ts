import { readScalars } from '../../aggregate';
import { COLORS } from '../../charts';
import type { ScalarsOptions, ViewOptions } from '../../protocol/views.generated';
import type { IRunSource, SourceChange } from '../../store/source';
import type { Control } from '../shared/control';
import { outliersControl, smoothedChip, smoothingControl } from '../shared/controls';
import type {
  IComposition,
  ICompositionEnvironment,
  IFoldLine,
  IViewDefinition,
  IViewPart
} from '../shared/definition';
import { RunList, runsControls } from '../kits/lines/compare';
import { SMOOTHINGS } from '../kits/lines/lines-view';
import { guarded } from '../shared/tile';
import type { IViewEnvironment } from '../shared/view-model';
import { axisControls, foundNames, kindControl, ScalarLines } from './scalar-lines';

/** Pixels of a small picture's plot, and least time between two drawings that the run asks for, ms. */
const HEIGHT = 120;
const EVERY = 2000;

/** A small picture of one scalar: the page has its controls. */
class SmallScalar extends ScalarLines {
  override controls(): Control[] {
    return [];
  }

  protected override readonly unitless = '';
}

/** Scalars in sections by the beginnings of their names; those without one stand first. */
export function sectionsOf(names: readonly string[]): Map<string, string[]> {
  const ordered = [...names].sort((a, b) => a.localeCompare(b, undefined, { numeric: true }));
  const sections = new Map<string, string[]>([['', []]]);
  for (const name of ordered) {
    const section = name.includes('/') ? (name.split('/')[0] ?? '') : '';
    sections.set(section, [...(sections.get(section) ?? []), name]);
  }
  return new Map([...sections].filter(([, own]) => own.length > 0));
}

/** Scalars as one picture, or as a page with a small picture for each. */
class ScalarsView implements IComposition {
  constructor(
    private readonly _source: IRunSource,
    private readonly _env: ICompositionEnvironment<ScalarsOptions>
  ) {
    this.unpictured = _env.t('No scalar is drawn yet.');
    this._runs = new RunList(_source, _env.runs, () => _env.rearrange());
    _source.changed.connect(this._heard, this);
  }

  readonly className = 'jp-MegalensMoments jp-MegalensScalars';
  readonly unpictured: string;
  readonly zoomed = 'lines';

  async prepare(): Promise<void> {
    if (this._isPage) {
      this._known = Object.keys((await readScalars(this._source, { names: [] })).units);
    }
  }

  layout(): readonly (IViewPart | IFoldLine)[] {
    const { options, choose, t } = this._env;
    const found = foundNames(this._known, options.search);
    if (!this._isPage || found.length === 0) {
      return [this._part('lines', options, (source, env) => new ScalarLines(source, env))];
    }
    const sections = sectionsOf(found);
    return [...sections].flatMap(([section, names]) => {
      const isFolded = options.folded.includes(section);
      const others = options.folded.filter(each => each !== section);
      const line: IFoldLine = {
        key: `section ${section}`,
        text: `${section || t('without a section')} (${names.length})`,
        isFolded,
        fold: () => choose({ folded: isFolded ? others : [...others, section] })
      };
      const pictures = isFolded ? [] : names.map(name => this._small(name, section));
      return sections.size > 1 || section !== '' ? [line, ...pictures] : pictures;
    });
  }

  shows(): boolean {
    return true;
  }

  heard(_key: string, options: Partial<ViewOptions>): Partial<ScalarsOptions> {
    return options as Partial<ScalarsOptions>;
  }

  controls(of: (key: string) => readonly Control[]): ReturnType<IComposition['controls']> {
    const { options, choose, t } = this._env;
    const names: Control[] =
      options.runs.length === 0
        ? []
        : [
            {
              kind: 'toggle',
              id: 'names',
              text: `${t('Names')} ${this._isOpen ? '▴' : '▾'}`,
              title: t('What runs are called here; runs of one name are a group'),
              pressed: this._isOpen,
              change: isOpen => {
                this._isOpen = isOpen;
                this._env.rearrange();
              }
            }
          ];
    const main = this._isPage ? this._pageControls(of) : of('lines');
    const aliases = this._runNames.map(({ name, own }, at): Control => ({
      kind: 'text',
      id: `alias-${at}`,
      label: own,
      value: name === own ? '' : name,
      suggestions: options.aliases.filter(Boolean),
      valid: text => text.length <= 100,
      spaced: true,
      change: text =>
        choose({
          aliases: this._runNames.map((_, run) => (run === at ? text : (options.aliases[run] ?? '')))
        })
    }));
    const isOpen = this._isOpen && options.runs.length > 0;
    return {
      main: [...main, ...names],
      folded: { label: t('Names of runs'), controls: isOpen ? aliases : null }
    };
  }

  dispose(): void {
    clearTimeout(this._later);
    this._source.changed.disconnect(this._heard, this);
  }

  private _part(
    key: string,
    options: Readonly<Required<ScalarsOptions>>,
    create: (source: IRunSource, env: IViewEnvironment<ScalarsOptions>) => ScalarLines
  ): IViewPart {
    return {
      key,
      className: 'jp-MegalensMoments-pane',
      options,
      create: (source, env) => create(source, env as IViewEnvironment<ScalarsOptions>)
    };
  }

  private _small(name: string, section: string): IViewPart {
    const { options, choose, t } = this._env;
    const alone = { ...options, kind: 'lines' as const, names: [name] };
    return {
      key: `scalar ${name}`,
      className: 'jp-MegalensTile jp-mod-picture jp-mod-small',
      options: alone,
      every: EVERY,
      isLazy: true,
      heading: {
        text: section === '' ? name : name.slice(section.length + 1),
        hint: t('%1: draw it alone', name),
        open: () => choose({ kind: 'lines', names: [name] })
      },
      create: (source, env) =>
        guarded(
          () => new SmallScalar(source, env as IViewEnvironment<ScalarsOptions>),
          source,
          env,
          () => HEIGHT
        )
    };
  }

  private _pageControls(of: (key: string) => readonly Control[]): Control[] {
    const { options, choose, t, isDark } = this._env;
    const palette = COLORS.categorical[isDark ? 'dark' : 'light'];
    const names = this._runNames.map(({ name }) => name);
    const colors = names.map(name => palette[names.indexOf(name) % palette.length]);
    const drawn = this._known.map(name => of(`scalar ${name}`)).find(controls => controls.length > 0);
    const runs = runsControls({ source: this._source, options, runs: this._runs.known, choose }, t);
    return [
      { kind: 'name', id: 'run', text: names[0] ?? '', ...(names.length > 1 && { color: colors[0] }) },
      kindControl(options.kind, choose, t),
      {
        kind: 'text',
        id: 'search',
        label: t('Search'),
        value: options.search,
        suggestions: [...sectionsOf(this._known).keys()].filter(Boolean),
        valid: () => true,
        spaced: true,
        change: search => choose({ search })
      },
      smoothingControl(SMOOTHINGS, options.smoothing, smoothing => choose({ smoothing }), t),
      ...smoothedChip(options.smoothing, smoothing => choose({ smoothing }), t),
      ...axisControls(options, choose, t),
      outliersControl(options.ignore_outliers, choose, t),
      ...runs.map(control =>
        control.kind === 'chip'
          ? { ...control, color: colors[options.runs.indexOf(control.id.slice(4)) + 1] }
          : control
      ),
      ...(drawn ?? [])
    ];
  }

  /** What this run and the others are called here, and by themselves. */
  private get _runNames(): readonly { readonly name: string; readonly own: string }[] {
    const { aliases, runs } = this._env.options;
    const known = this._runs.known ?? [];
    const own = [this._source.name, ...runs.map(id => known.find(each => each.id === id)?.name ?? id)];
    return own.map((each, at) => ({ name: aliases[at] || each, own: each }));
  }

  private get _isPage(): boolean {
    return this._env.options.kind === 'page' && !this._env.isStill;
  }

  /** There may be another scalar now. */
  private _heard(_: IRunSource, change: SourceChange): void {
    const isConcerned = change.kind === 'hello' || (change.kind === 'rows' && change.stream === 'scalars');
    if (isConcerned && this._isPage && this._later === undefined) {
      this._later = setTimeout(() => {
        this._later = undefined;
        this._env.relayout();
      }, EVERY);
    }
  }

  private readonly _runs: RunList;
  private _known: readonly string[] = [];
  private _isOpen = false;
  private _later: ReturnType<typeof setTimeout> | undefined;
}

export const view: IViewDefinition<ScalarsOptions> = {
  compose: (source, env) => new ScalarsView(source, env)
};
