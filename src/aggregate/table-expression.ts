import { parse, type AnyNode } from 'acorn';
import { AggregateError } from './moment-merge';
import { own, withOwn } from '../protocol/records';

type Type = 'number' | 'text';

export type TableColumns = Readonly<Record<string, Type>>;

/** A new column, or the test of a filter, as text that arquero may be given. */
export interface ITableExpression {
  /** Name of the column; '' for a filter. */
  readonly name: string;
  readonly code: string;
  readonly type: Type;
}

/** Most characters of a line, and columns that it may make: with the rows of a table they bound the time. */
const MOST_CHARACTERS = 500;
const MOST_NEW = 10;
const MOST_ARGUMENTS = 8;

/** The words of some lines. */
const words = (...lines: readonly string[]): string[] => lines.flatMap(line => line.split(' '));

const CONSTANTS = words('NaN Infinity PI E LN2 LN10 SQRT2');
const OPERATORS = words('+ - * / % ** < <= > >= == != === !==');

/**
 * Functions of arquero that may be called: whose answer is no longer than what they are given, and whose time
 * is that of the rows. None makes a regular expression, an object or a longer text.
 */
const NUMBERS = words(
  // Of one row.
  'abs ceil floor round trunc sign sqrt cbrt exp expm1 log log10 log1p log2 pow',
  'sin cos tan asin acos atan atan2 sinh cosh tanh greatest least degrees radians',
  'is_nan is_finite equal length indexof includes startswith endswith parse_float',
  // Of all rows of a group.
  'count valid invalid distinct sum product mean average variance variancep stdev stdevp',
  'median quantile covariance covariancep corr',
  // Of a row among those of its group.
  'row_number rank avg_rank dense_rank percent_rank cume_dist ntile'
);
const TEXTS = words('lower upper trim substring');
/** Whose answer is what they are given. */
const SAME = words('min max mode any lag lead first_value last_value nth_value fill_down fill_up');
/** As arquero does with those of `Math`. */
const OF_MATH: Readonly<Record<string, string>> = { max: 'greatest', min: 'least' };

/**
 * Read a line such as `share = d.value / op.max(d.value); late = d.step > 100`.
 *
 * What arquero is given is written anew from what was understood here: columns, numbers, texts, operators and
 * known functions, and nothing else.
 *
 * @throws AggregateError that names the place.
 */
export function readDerive(line: string, columns: TableColumns): ITableExpression[] {
  let known = columns;
  const made = statementsOf(line, 'derived columns').map((statement): ITableExpression => {
    const refuse = refuser(line, 'derived columns');
    if (
      statement.type !== 'AssignmentExpression' ||
      statement.operator !== '=' ||
      statement.left.type !== 'Identifier'
    ) {
      throw refuse(statement, 'a new column must be written as name = expression');
    }
    const { name } = statement.left;
    // Here inherited names are meant: arquero keeps columns in plain objects.
    // eslint-disable-next-line megalens/own-names
    if (name in Object.prototype || name === '__proto__' || Object.hasOwn(known, name)) {
      throw refuse(statement.left, 'this name is taken, choose another one');
    }
    const [code, type] = new Writer(known, refuse).write(bodyOf(statement.right));
    known = withOwn(known, name, type);
    return { name, code: `d => ${code}`, type };
  });
  if (made.length > MOST_NEW) {
    throw new AggregateError(
      `A table takes at most ${MOST_NEW} derived columns, got ${made.length}.`,
      'line'
    );
  }
  return made;
}

/**
 * Read a test of rows such as `d.layer < 4 && d.value > op.median(d.value)`.
 *
 * @throws AggregateError that names the place.
 */
export function readFilter(line: string, columns: TableColumns): ITableExpression {
  const statements = statementsOf(line, 'filter');
  const [statement] = statements;
  if (statement === undefined || statements.length > 1) {
    throw new AggregateError(`The filter must be one expression, got ${statements.length}.`, 'line');
  }
  const [code, type] = new Writer(columns, refuser(line, 'filter')).write(bodyOf(statement));
  return { name: '', code: `d => ${code}`, type };
}

/** The expressions of a line, by arquero's own parser. */
function statementsOf(line: string, what: string): AnyNode[] {
  if (line.length > MOST_CHARACTERS) {
    throw new AggregateError(
      `The ${what} must be at most ${MOST_CHARACTERS} characters, got ${line.length}.`
    );
  }
  const refuse = refuser(line, what);
  try {
    return (parse(line, { ecmaVersion: 11 }).body as AnyNode[]).flatMap(node => {
      if (node.type === 'EmptyStatement') {
        return [];
      }
      if (node.type !== 'ExpressionStatement') {
        throw refuse(node, 'an expression is expected here');
      }
      return [node.expression as AnyNode];
    });
  } catch (error) {
    if (!(error instanceof SyntaxError)) {
      throw error;
    }
    const start = Number((error as { pos?: unknown }).pos ?? 0);
    throw refuse({ start, end: line.length }, 'this could not be read');
  }
}

type Refuse = (node: { start: number; end: number }, why: string) => AggregateError;

function refuser(line: string, what: string): Refuse {
  return ({ start, end }, why) => {
    const piece = line.slice(start, Math.min(end, start + 40)) || 'the end';
    return new AggregateError(
      `The ${what} cannot have ‘${piece}’ at character ${start + 1}: ${why}.`,
      'line'
    );
  };
}

/** What stands behind `d =>`, which may be written and need not. */
function bodyOf(node: AnyNode): AnyNode {
  const isPlain =
    node.type === 'ArrowFunctionExpression' &&
    !node.async &&
    node.params.every((each, at) => at === 0 && each.type === 'Identifier' && each.name === 'd');
  return isPlain ? (node.body as AnyNode) : node;
}

class Writer {
  constructor(
    private readonly columns: TableColumns,
    private readonly refuse: Refuse
  ) {}

  write(node: AnyNode): [string, Type] {
    switch (node.type) {
      case 'Literal':
        return this._literal(node);
      case 'Identifier':
        if (CONSTANTS.includes(node.name)) {
          return [node.name, 'number'];
        }
        throw this.refuse(node, `only columns (d.value), numbers, texts and functions (op.log10) are known`);
      case 'MemberExpression':
        return this._column(node);
      case 'CallExpression':
        return this._call(node);
      case 'UnaryExpression':
        if (!['-', '+', '!'].includes(node.operator)) {
          throw this.refuse(node, 'there is no such operator');
        }
        return [`(${node.operator} ${this.write(node.argument as AnyNode)[0]})`, 'number'];
      case 'BinaryExpression':
      case 'LogicalExpression':
        return this._binary(node);
      case 'ConditionalExpression': {
        const [test, yes, no] = [node.test, node.consequent, node.alternate].map(each =>
          this.write(each as AnyNode)
        ) as [[string, Type], [string, Type], [string, Type]];
        return [`(${test[0]} ? ${yes[0]} : ${no[0]})`, yes[1] === 'text' ? 'text' : no[1]];
      }
      default:
        throw this.refuse(
          node,
          'only columns, numbers, texts, operators and functions may stand in an expression'
        );
    }
  }

  private _literal(node: AnyNode & { type: 'Literal' }): [string, Type] {
    const { value } = node;
    if (typeof value === 'string') {
      return [JSON.stringify(value), 'text'];
    }
    if (
      (typeof value === 'number' && !node.bigint) ||
      typeof value === 'boolean' ||
      (value === null && node.raw === 'null')
    ) {
      return [value === Infinity ? 'Infinity' : String(value), 'number'];
    }
    throw this.refuse(node, 'only numbers, texts, true, false and null may be written');
  }

  private _column(node: AnyNode & { type: 'MemberExpression' }): [string, Type] {
    const { object, property, computed, optional } = node;
    if (object.type !== 'Identifier' || object.name !== 'd' || optional) {
      throw this.refuse(node, 'only columns have a point before their name, as d.value');
    }
    const name =
      !computed && property.type === 'Identifier'
        ? property.name
        : property.type === 'Literal' && typeof property.value === 'string'
          ? property.value
          : null;
    const type = name === null ? undefined : own(this.columns, name);
    if (name === null || type === undefined) {
      throw this.refuse(node, `a column must be one of ${Object.keys(this.columns).join(', ')}`);
    }
    return [`d[${JSON.stringify(name)}]`, type];
  }

  private _call(node: AnyNode & { type: 'CallExpression' }): [string, Type] {
    const { callee, arguments: given, optional } = node;
    const called =
      callee.type === 'MemberExpression' &&
      !callee.computed &&
      callee.object.type === 'Identifier' &&
      callee.property.type === 'Identifier'
        ? [callee.object.name, callee.property.name]
        : [];
    const [scope, named = ''] = called;
    const name = scope === 'Math' ? (own(OF_MATH, named) ?? named) : named;
    const isKnown = [...NUMBERS, ...TEXTS, ...SAME].includes(name);
    if ((scope !== 'op' && scope !== 'Math') || optional || !isKnown) {
      throw this.refuse(callee, 'there is no such function here');
    }
    if (given.length > MOST_ARGUMENTS) {
      throw this.refuse(node, `a function takes at most ${MOST_ARGUMENTS} values here`);
    }
    const all = given.map(each => this._argument(each as AnyNode));
    const type = TEXTS.includes(name) || (SAME.includes(name) && all.some(each => each[1] === 'text'));
    return [`op.${name}(${all.map(each => each[0]).join(', ')})`, type ? 'text' : 'number'];
  }

  /** What a function is given: a list of numbers or texts, too. */
  private _argument(node: AnyNode): [string, Type] {
    if (node.type !== 'ArrayExpression') {
      return this.write(node);
    }
    const each = node.elements.map(element => {
      if (element?.type !== 'Literal') {
        throw this.refuse(node, 'a list must hold numbers or texts');
      }
      return this._literal(element)[0];
    });
    return [`[${each.join(', ')}]`, 'number'];
  }

  private _binary(node: AnyNode & { type: 'BinaryExpression' | 'LogicalExpression' }): [string, Type] {
    const { operator } = node;
    const isLogical = node.type === 'LogicalExpression';
    if (!isLogical && !OPERATORS.includes(operator)) {
      throw this.refuse(node, `there is no operator ${operator} here`);
    }
    const [left, right] = [this.write(node.left as AnyNode), this.write(node.right as AnyNode)];
    const isText = left[1] === 'text' || right[1] === 'text';
    // Texts that can be joined can be made as long as memory is.
    if (operator === '+' && isText) {
      throw this.refuse(node, '+ adds numbers, not texts');
    }
    return [`(${left[0]} ${operator} ${right[0]})`, isLogical && isText ? 'text' : 'number'];
  }
}
