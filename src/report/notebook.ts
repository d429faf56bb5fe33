import type { ViewOptions } from '../protocol/views.generated';
import { toCode } from '../views/code';
import type { IStill } from '../views/still';
import { dateText, type IFacts } from './facts';
import type { Translate } from '../views/shared/translate';
import { visible } from '../charts/format';

export interface ICellPicture {
  readonly title: string;
  readonly caption: readonly string[];
  /** Empty where there is nothing to draw, as the caption says. */
  readonly svg: string;
  readonly spec: object | null;
}

export interface ICell {
  readonly options: ViewOptions;
  readonly pictures: readonly ICellPicture[];
}

const MIME = 'application/vnd.vegalite.v5+json';
const SCHEMA = 'https://vega.github.io/schema/vega-lite/v5.json';

/**
 * Write a notebook of format 4.5: the views' own code, and pictures that show anywhere.
 * @param opening - The Python expression that opens the same run again.
 * @param made - Seconds since the epoch.
 */
export function notebookText(
  facts: IFacts,
  cells: readonly ICell[],
  title: string,
  opening: string,
  made: number,
  t: Translate
): string {
  const tables = tablesText(facts, t);
  const all = [
    markdown(introduction(facts, title, made, t)),
    code(`import megalens\n\nrun = ${opening}`),
    ...cells.map(({ options, pictures }, index) => {
      const outputs = pictures.map((picture, at) => output(picture, at === 0 ? index + 1 : null));
      return code(toCode(options), index + 1, outputs);
    }),
    ...(tables ? [markdown(tables)] : [])
  ];
  const notebook = {
    cells: all.map((cell, index) => ({ id: `megalens-${index}`, ...cell })),
    metadata: {
      kernelspec: { display_name: 'Python 3', language: 'python', name: 'python3' },
      language_info: { name: 'python' }
    },
    nbformat: 4,
    nbformat_minor: 5
  };
  const text = JSON.stringify(
    notebook,
    (_, each: unknown) => (typeof each === 'string' ? visible(each) : each),
    1
  );
  return `${text}\n`;
}

/** Write what happened in words and numbers, as Markdown: for people and language models. */
export function digestText(
  facts: IFacts,
  stills: readonly Omit<IStill, 'recipe'>[],
  title: string,
  made: number,
  t: Translate
): string {
  const sections = stills.flatMap(({ title: heading, summary, caption }) => {
    // A line that ends so leads to code, which stands in the view.
    const lines = [...new Set([summary, ...caption])].filter(line => line !== '' && !line.endsWith(':'));
    return lines.length === 0 ? [] : [['', `## ${plain(heading)}`, ...lines.map(plain)].join('\n\n')];
  });
  return `${[introduction(facts, title, made, t), ...new Set(sections), '', tablesText(facts, t)].join('\n').trim()}\n`;
}

const markdown = (source: string): object => ({ cell_type: 'markdown', metadata: {}, source });

function code(source: string, count: number | null = null, outputs: readonly object[] = []): object {
  return { cell_type: 'code', execution_count: count, metadata: {}, outputs, source };
}

function output({ title, caption, svg, spec }: ICellPicture, count: number | null): object {
  const data = {
    ...(spec === null ? {} : { [MIME]: { $schema: SCHEMA, ...spec }, 'image/svg+xml': svg }),
    'text/plain': `${title}. ${caption.join(' ')}`.trim()
  };
  return count === null
    ? { output_type: 'display_data', data, metadata: {} }
    : { output_type: 'execute_result', data, execution_count: count, metadata: {} };
}

function introduction({ name, id, facts }: IFacts, title: string, made: number, t: Translate): string {
  return [
    `# ${plain(title)}`,
    '',
    `${t('Run %1, %2.', plain(name), plain(id))} ${t('Made %1 with Megalens.', dateText(made))}`,
    '',
    ...table(['', ''], facts)
  ].join('\n');
}

function tablesText({ traced, changes }: IFacts, t: Translate): string {
  return [
    ...(traced.length > 0
      ? [
          `## ${t('What was traced')}`,
          '',
          ...table([t('trace point'), t('layers'), t('compressor'), t('steps')], traced),
          ''
        ]
      : []),
    ...(changes.length > 0
      ? [`## ${t('Changes during the run')}`, '', ...table([t('from step'), t('change')], changes)]
      : [])
  ]
    .join('\n')
    .trim();
}

function table(head: readonly string[], rows: readonly (readonly string[])[]): string[] {
  const line = (cells: readonly string[]): string => `| ${cells.join(' | ')} |`;
  return [line(head), `|${head.map(() => '---').join('|')}|`, ...rows.map(row => line(row.map(plain)))];
}

/**
 * Return text that Markdown shows as it is: no emphasis, no markup, no formula, and no link that nobody wrote
 * as one.
 */
function plain(text: string): string {
  return text
    .replace(/[\\&$@~^]|:(?=\/)/g, letter => `&#${letter.charCodeAt(0)};`)
    .replace(/\bwww\./gi, start => `${start.slice(0, 3)}&#46;`)
    .replace(/[`*_[\]<>|!]|#(?!\d+;)/g, letter => `\\${letter}`)
    .split(/\s+/)
    .filter(Boolean)
    .join(' ');
}
