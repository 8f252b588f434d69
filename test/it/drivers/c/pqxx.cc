// libpqxx 6.

#include <cstdlib>
#include <iostream>
#include <map>
#include <memory>
#include <pqxx/pqxx>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "json.h"

// [producer]
static void produce(pqxx::connection &conn, int order)
{
	pqxx::work tx(conn);

	tx.exec_params("INSERT INTO orders VALUES ($1)", order);
	tx.exec_params("QUEUE PUSH mail $1", "{\"order\": " + std::to_string(order) + "}");
	tx.commit(); // both, or neither
}
// [/producer]

// [worker]
// One turn: call it in a loop. False if there was nothing to do for 20 seconds.
static bool work(pqxx::connection &conn)
{
	pqxx::result jobs = pqxx::nontransaction(conn).exec("QUEUE TAKE mail WAIT '20s'");

	if (jobs.empty())
		return false;
	std::string token = jobs[0]["token"].c_str(), payload = jobs[0]["payload"].c_str();
	try {
		pqxx::work tx(conn);
		int order = std::stoi(payload.substr(payload.find_first_of("-0123456789"))); // or your JSON library

		tx.exec_params("INSERT INTO sent VALUES ($1)", order);
		tx.exec_params("QUEUE DONE $1", token); // the work and DONE commit together, or not at all
		tx.commit();
	} catch (const std::exception &e) { // whatever it was: nobody else gives the job back
		try {
			pqxx::nontransaction(conn).exec_params("QUEUE FAIL $1 ERROR $2", token, e.what());
		} catch (const pqxx::sql_error &late) {
			if (late.sqlstate() != "QB001" && late.sqlstate() != "QB002")
				throw; // else it is not our job any more, or cancelled
		}
	}
	return true;
}
// [/worker]

typedef std::vector<std::string> words_t;
static std::unique_ptr<pqxx::connection> conn;
static std::unique_ptr<pqxx::work> block;
static std::map<std::string, std::string> prepared;

static void login()
{
	prepared.clear();
	conn.reset(new pqxx::connection(std::string("host=") + getenv("QB_HOST") + " port=" + getenv("QB_PORT") +
		" dbname=" + getenv("QB_DB") + " user=" + getenv("QB_USER") + " password=" + getenv("QB_PASSWORD")));
}

static std::vector<const char *> values_of(const words_t &w)
{
	std::vector<const char *> out;

	for (size_t i = 2; i < w.size(); i++)
		out.push_back(w[i][0] == 'n' ? nullptr : w[i].c_str() + 2);
	return out;
}

static pqxx::result run_in(pqxx::transaction_base &tx, const words_t &w, const std::string &name = "")
{
	std::vector<const char *> values = values_of(w);
	auto dynamic = pqxx::prepare::make_dynamic_params(values);

	if (!name.empty())
		return tx.exec_prepared(name, dynamic);
	return values.empty() ? tx.exec(w[1]) : tx.exec_params(w[1], dynamic);
}

static pqxx::result run(const words_t &w, const std::string &name = "")
{
	if (block)
		return run_in(*block, w, name);
	pqxx::nontransaction tx(*conn);
	return run_in(tx, w, name);
}

static void say(const pqxx::result &r)
{
	fputs("{\"columns\":[", stdout);
	for (unsigned i = 0; i < r.columns(); i++) {
		fputs(i > 0 ? "," : "", stdout);
		json_say(r.column_name(i));
	}
	fputs("],\"types\":[", stdout);
	for (unsigned i = 0; i < r.columns(); i++)
		printf("%s\"%u\"", i > 0 ? "," : "", r.column_type(i));
	fputs("],\"rows\":[", stdout);
	for (unsigned i = 0; i < r.size(); i++) {
		for (unsigned k = 0; k < r.columns(); k++) {
			fputs(k > 0 ? "," : i > 0 ? ",[" : "[", stdout);
			json_say(r[i][k].is_null() ? nullptr : r[i][k].c_str());
		}
		putchar(']');
	}
	fputs("]}", stdout);
}

static void answer(const words_t &w)
{
	const std::string &verb = w[0];

	if (verb == "exec") {
		printf("{\"count\":%lu}", (unsigned long)run(w).affected_rows());
		return;
	}
	if (verb == "query")
		return say(run(w));
	if (verb == "prepare") {
		if (prepared.count(w[1]) == 0) {
			std::string name = "p" + std::to_string(prepared.size());

			conn->prepare(name, w[1]);
			prepared[w[1]] = name;
		}
		return say(run(w, prepared[w[1]]));
	}
	if (verb == "cancel") {
		std::thread other([] {
			std::string word;

			std::getline(std::cin, word);
			conn->cancel_query();
		});
		try {
			say(run(w));
		} catch (...) {
			other.join();
			throw;
		}
		other.join();
		return;
	}
	if (verb == "work") {
		fputs(work(*conn) ? "{\"ok\":true}" : "{\"ok\":false}", stdout);
		return;
	}
	if (verb == "begin") {
		block.reset(new pqxx::work(*conn));
	} else if (verb == "commit") {
		block->commit();
		block.reset();
	} else if (verb == "rollback") {
		block->abort();
		block.reset();
	} else if (verb == "reconnect") {
		login();
	} else if (verb == "produce") {
		produce(*conn, std::stoi(w[1]));
	} else {
		printf("{\"skip\":\"%s\"}", verb.c_str());
		return;
	}
	fputs("{\"ok\":true}", stdout);
}

static void say_error(const char *state, const char *message)
{
	printf("{\"error\":");
	json_say(state);
	fputs(",\"message\":", stdout);
	json_say(message);
	putchar('}');
}

int main()
{
	std::string line, word;

	login();
	while (std::getline(std::cin, line)) {
		std::istringstream in(line);
		words_t words;

		while (std::getline(in, word, '\t'))
			words.push_back(word);
		try {
			answer(words);
		} catch (const pqxx::sql_error &e) {
			say_error(e.sqlstate().c_str(), e.what());
		} catch (const std::exception &e) {
			say_error(nullptr, e.what());
		}
		putchar('\n');
		fflush(stdout);
	}
	block.reset();
	return 0;
}
