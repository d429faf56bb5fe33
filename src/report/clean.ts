import { cleanPaths } from '../views/shared/clean-paths';

/** Return a JSON value with every text in it cleaned. */
export function cleaned<T>(value: T): T {
  return JSON.parse(JSON.stringify(value), (_, each: unknown) =>
    typeof each === 'string' ? cleanPaths(each) : each
  ) as T;
}
